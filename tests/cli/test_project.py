"""A command finds the project's lakehouse as Dagster would, or says what is wrong."""

from __future__ import annotations

import re
import sys

import pytest

from lakehouse_dagster.cli.project import default_modules, load_project
from lakehouse_dagster.errors import ConfigurationError, ScriptError
from tests.cli.projects import NOBODY, SCRIPTS, Project, own_process, project
from tests.streaming.making import write_scripts

__all__ = ["project"]

COMPONENT = """\
type: lakehouse_dagster.LakehouseComponent
attributes:
  catalog: {{warehouse: /nowhere}}
  scripts: '*.sql'
  flink: {{rest_url: http://127.0.0.1:9, sql_gateway_url: http://127.0.0.1:9}}
  maintenance:
    default:
      {setting}
"""


@pytest.mark.parametrize(
    ("toml", "modules"),
    [
        ('[tool.dagster]\nmodule_name = "a.b"', ("a.b",)),
        ('[tool.dagster]\nmodule_name = "a"\n[tool.dg.project]\nroot_module = "b"', ("a",)),
        (
            '[tool.dagster]\nmodules = [{type = "module", name = "a"}, '
            '{type = "module", name = "b"}]',
            ("a", "b"),
        ),
        ('[tool.dg.project]\nroot_module = "own"', ("own.definitions",)),
        (
            '[tool.dg.project]\nroot_module = "own"\ncode_location_target_module = "own.main"',
            ("own.main",),
        ),
    ],
)
def test_the_module_is_the_one_that_dagster_would_load(
    project: Project, toml: str, modules: tuple[str, ...]
) -> None:
    project.write("pyproject.toml", toml)
    assert default_modules() == modules


@pytest.mark.parametrize("toml", ["", "[tool.ruff]\n", "[tool.dagster]\n"])
def test_without_a_named_module_the_error_says_where_to_name_it(
    project: Project, toml: str
) -> None:
    project.write("pyproject.toml", toml)
    said = project.run("status")
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        f"Error: No Dagster module is named in {project.folder}/pyproject.toml. "
        'Write [tool.dagster] module_name = "…" there, or name the module with -m.\n'
    )


def test_where_there_is_no_pyproject_it_is_said_that_there_is_none(project: Project) -> None:
    said = project.run("status")
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        f"Error: There is no pyproject.toml in {project.folder}, which would name a Dagster "
        "module. Go to the project's folder, or name the module with -m.\n"
    )


def test_a_dg_project_is_found_in_its_folder_src_without_being_installed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    project.write("pyproject.toml", '[tool.dg.project]\nroot_module = "below_src"')
    project.write("src/below_src/__init__.py", "")
    project.module("src/below_src/definitions.py")
    assert sorted(load_project(None).runtime.jobs) == ["orders", "sales"]


def test_a_broken_pyproject_is_named(project: Project) -> None:
    project.write("pyproject.toml", "[tool.dagster\n")
    said = project.run("status")
    assert said.code == 1
    assert said.err.startswith("Error: pyproject.toml cannot be read: ")
    assert "line 1" in said.err


def test_the_lakehouse_is_found_through_tool_dagster(project: Project) -> None:
    project.module()
    project.write("pyproject.toml", '[tool.dagster]\nmodule_name = "shop"')
    lake = load_project(None)
    assert lake.lakehouse.name == "lake"
    assert sorted(lake.runtime.jobs) == ["orders", "sales"]


def test_the_lakehouse_is_found_in_a_dg_project_with_lazy_definitions(project: Project) -> None:
    project.write("pyproject.toml", '[tool.dg.project]\nroot_module = "own"')
    project.write("own/__init__.py", "")
    project.module("own/lakes.py")
    project.write(
        "own/definitions.py",
        "import dagster as dg\n\n\n@dg.definitions\ndef defs():\n"
        "    from own.lakes import lake\n    return dg.Definitions.merge(lake)\n",
    )
    assert sorted(load_project(None).runtime.jobs) == ["orders", "sales"]


def of_components(project: Project) -> None:
    """A project of ``dg`` whose module ``own`` loads what lies in its folder ``defs``."""
    project.write("pyproject.toml", '[tool.dg.project]\nroot_module = "own"')
    project.write("own/__init__.py", "")
    project.write(
        "own/definitions.py",
        "from pathlib import Path\nimport dagster as dg\n\n\n@dg.definitions\ndef defs():\n"
        "    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n",
    )


def test_the_lakehouse_of_a_component_is_found(project: Project) -> None:
    of_components(project)
    project.write(
        "own/defs/lake/defs.yaml",
        "type: lakehouse_dagster.LakehouseComponent\nattributes:\n  name: yaml\n"
        "  catalog: {warehouse: /nowhere}\n  scripts: '*.sql'\n"
        f"  flink: {{rest_url: {NOBODY}, sql_gateway_url: {NOBODY}}}\n",
    )
    write_scripts(
        project.folder / "own" / "defs" / "lake",
        {"a": "CREATE TABLE a.b (id BIGINT, PRIMARY KEY (id) NOT ENFORCED);"},
    )
    lake = load_project(None)
    assert (lake.lakehouse.name, list(lake.graph.tables)) == ("yaml", ["a.b"])


def test_m_wins_over_the_file(project: Project) -> None:
    project.module("other.py", "other")
    project.write("pyproject.toml", '[tool.dagster]\nmodule_name = "shop"')
    assert load_project("other").lakehouse.name == "other"


def test_one_of_several_lakehouses_is_chosen_by_name(project: Project) -> None:
    project.module("shop.py", "east", "west")
    assert load_project("shop", "west").lakehouse.name == "west"
    with pytest.raises(ConfigurationError, match=r"have the lakehouses east, west\. Choose one"):
        load_project("shop")
    said = project.run("status", "-m", "shop", "--lakehouse", "north")
    assert (said.code, said.err) == (
        1,
        "Error: The definitions of 'shop' have the lakehouses east, west, none named 'north'. "
        "Choose one with --lakehouse.\n",
    )


def test_lakehouses_of_several_modules_are_told_apart(project: Project) -> None:
    project.module("one.py", "east")
    project.module("two.py", "west")
    modules = '{type = "module", name = "one"}, {type = "module", name = "two"}'
    project.write("pyproject.toml", f"[tool.dagster]\nmodules = [{modules}]")
    assert load_project(None, "east").lakehouse.name == "east"
    project.module("three.py", "west")
    project.write(
        "pyproject.toml", f"[tool.dagster]\nmodules = [{modules.replace('one', 'three')}]"
    )
    with pytest.raises(ConfigurationError, match="have several lakehouses named 'west'"):
        load_project(None, "west")


def test_the_same_definitions_under_two_names_are_one_lakehouse(project: Project) -> None:
    project.module()
    with (project.folder / "shop.py").open("a") as file:
        file.write("defs = lake\n")
    assert load_project("shop").lakehouse.name == "lake"


def test_a_module_without_a_lakehouse_is_named(project: Project) -> None:
    project.write("shop.py", "import dagster as dg\ndefs = dg.Definitions()\n")
    said = project.run("status", "-m", "shop")
    assert said.code == 1
    assert said.err.startswith("Error: The definitions of 'shop' have no lakehouse. ")


@pytest.mark.parametrize("name", ["nobody", "shop.nobody", "nobody.definitions"])
def test_a_module_that_is_not_there_is_named_with_the_folder(project: Project, name: str) -> None:
    project.write("shop/__init__.py", "")
    said = project.run("status", "-m", name)
    assert (said.code, said.err) == (
        1,
        f"Error: There is no Python module {name!r} here ({project.folder}). "
        "Go to the project's folder, or name the module with -m.\n",
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import json\nimport sho\n", "ModuleNotFoundError: No module named 'sho' (shop.py:2)"),
        ("from json import nothing\n", "ImportError: cannot import name 'nothing' from 'json'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero (shop.py:1)"),
        ("def f(:\n", "SyntaxError: invalid syntax (shop.py, line 1)"),
        ("from helper import f\n\nf()\n", "KeyError: 'x' (helper.py:2)"),
    ],
)
def test_a_module_that_fails_shows_its_true_error_and_place(
    project: Project, text: str, error: str
) -> None:
    project.write("helper.py", "def f():\n    return {}['x']\n")
    project.write("shop.py", text)
    said = project.run("status", "-m", "shop")
    assert said.code == 1
    assert said.err.startswith(f"Error: The module 'shop' cannot be loaded: {error}")
    assert "Traceback" not in said.err


def test_a_script_that_cannot_be_used_is_named_with_its_line(project: Project) -> None:
    project.module()
    write_scripts(project.folder / "sql", {"twice": SCRIPTS["sales"]})
    with pytest.raises(ScriptError):
        load_project("shop")
    said = project.run("jobs", "start", "orders", "-m", "shop")
    assert said.code == 1
    assert re.match(r"Error: sql/\w+\.sql:3:1: .*'?sales", said.err)


def test_warnings_about_scripts_do_not_get_into_the_output(project: Project) -> None:
    project.module()
    project.write("sql/odd.sql", "SET 'pipeline.name' = 'odd';\nINSERT INTO shop.sales SELEC 1;")
    said = own_process("jobs", "start", "odd", "--dry-run", "-m", "shop", folder=project.folder)
    assert said.code == 0
    assert said.out.startswith("would start odd, ")
    assert "sql/odd.sql:2:" in said.err


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        (
            "compact: {level0_files: 0}",
            "defs.yaml:8: attributes.maintenance.default.compact.level0_files: ",
        ),
        ("compcat: {}", "There is no setting compcat here. Did you mean compact?"),
        ("compact: [", "expected the node content, but found '<stream end>'"),
    ],
)
def test_a_mistake_in_yaml_is_told_as_dagster_tells_it_without_what_dagster_puts_around_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, setting: str, error: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    of_components(project)
    project.write("own/defs/lake/defs.yaml", COMPONENT.format(setting=setting))
    said = project.run("status")
    assert said.code == 1
    assert error in said.err
    assert "defs.yaml" in said.err
    assert "ComponentTreeException" not in said.err
