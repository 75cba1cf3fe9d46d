"""Every example of docs/catalogs.md: YAML and Python declare the same, and both load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

import lakehouse_dagster
from lakehouse_dagster import LakehouseComponent, OtherCatalog
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.secret_names import is_secret

PAGE = (Path(__file__).parent.parent.parent / "docs" / "catalogs.md").read_text()
_BLOCK = re.compile(r"^```(yaml|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = _BLOCK.findall(PAGE)
PAIRS = [(w[1], p[1]) for w, p in zip(BLOCKS[::2], BLOCKS[1::2], strict=True)]
ENVIRONMENT = {name: f"value-of-{name}" for name in re.findall(r"env\.(\w+)", PAGE)}
FLINK = {"rest_url": "http://127.0.0.1:9", "sql_gateway_url": "http://127.0.0.1:9"}


def _component(attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> LakehouseComponent:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=LakehouseComponent,
            defs_yaml_contents={
                "type": "lakehouse_dagster.LakehouseComponent",
                "attributes": {**attributes, "flink": FLINK, "scripts": "*.sql"},
            },
        )
        (path / "a.sql").write_text("CREATE TABLE a.b (id BIGINT);")
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, _):
            assert isinstance(component, LakehouseComponent)
            return component


def test_the_page_has_an_example_of_each_in_both_languages() -> None:
    assert [kind for kind, _ in BLOCKS] == ["yaml", "python"] * len(PAIRS)
    metastores = {
        yaml.safe_load(written)["catalog"].get("metastore", "filesystem") for written, _ in PAIRS
    }
    assert metastores == {"filesystem", "jdbc", "rest", "hive"}
    schemes = set(re.findall(r"warehouse: (\w+)://", PAGE))
    assert schemes == {"s3", "oss", "hdfs"}


@pytest.mark.parametrize(("written", "program"), PAIRS)
def test_yaml_and_python_declare_the_same_catalog(
    written: str, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = _component(yaml.safe_load(written), monkeypatch)
    names: dict[str, Any] = {name: getattr(lakehouse_dagster, name) for name in ("PaimonCatalog",)}
    exec(f"import os\n{program}", names | {"OtherCatalog": OtherCatalog}, names)
    assert component.catalog == names["catalog"]
    assert component.other_catalogs == names.get("other_catalogs", ())
    secrets = [v for key, v in component.catalog.options.items() if is_secret(key)]
    assert not [secret for secret in secrets if secret in repr(component)]


@pytest.mark.parametrize(
    ("option", "key"),
    [
        (option, key)
        for written, _ in PAIRS
        for key, option in yaml.safe_load(written)["catalog"].get("options", {}).items()
        if is_secret(key)
    ],
)
def test_a_secret_option_that_stands_in_the_file_is_refused(
    option: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.fullmatch(r"\{\{ env\.\w+ \}\}", option)
    literal = "hunter2hunter2"
    with pytest.raises(Exception) as refused:
        _component({"catalog": {"warehouse": "/l", "options": {key: literal}}}, monkeypatch)
    error: BaseException | None = refused.value
    while error is not None and not isinstance(error, ConfigurationError):
        error = error.__cause__ or error.__context__
    # (Around it Dagster shows the line of the file.)
    assert f"{key} is not taken from an environment variable" in str(error)
    assert literal not in str(error)
