"""Every mistake in ``defs.yaml`` is told with file, line and field, in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster.components.testing import create_defs_folder_sandbox

from lakehouse_dagster.components import LakehouseComponent
from lakehouse_dagster.errors import ConfigurationError

WRITTEN = """\
type: lakehouse_dagster.LakehouseComponent
attributes:
  catalog:
    warehouse: /data/lake
    options:
      s3.endpoint: "x"
  flink:
    rest_url: http://a:1
    sql_gateway_url: http://a:2
  scripts:
    - sql
  name: lake
  supervision:
    tick_interval: 5s
  checks:
    default:
      max_lag: 5m
  other_catalogs:
    - name: raw
      warehouse: /data/raw
    - name: more
      warehouse: /data/more
  tables:
    ods.*:
      group: g
      owners: [team:a]
      tags: {a: b}
      partitions:
        column: dt
        values: [a]
"""


def refusal(text: str, script: str = "") -> tuple[BaseException, Path]:
    """What Dagster's exception was made from, and the file."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=LakehouseComponent)
        (path / "defs.yaml").write_text(text)
        (path / "more.sql").write_text(script)
        with (
            pytest.raises(Exception) as caught,
            sandbox.load_component_and_build_defs(defs_path=path),
        ):
            pass
        error: BaseException | None = caught.value
        while error is not None and error.__cause__ is not None:
            error = error.__cause__
        assert error is not None
        return error, path / "defs.yaml"


def line_of(text: str, words: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if words in line)


@pytest.mark.parametrize(
    ("old", "new", "field", "said"),
    [
        ("/data/lake", "'{{ env.LAKE_UNSET }}'", "catalog.warehouse", "LAKE_UNSET is not set"),
        ('"x"', "'{{ env.LAKE_UNSET }}'", "catalog.options.s3.endpoint", "LAKE_UNSET is not set"),
        ("http://a:2", "'{{ env.LAKE_UNSET }}'", "flink.sql_gateway_url", "LAKE_UNSET is not set"),
        ("- sql", "- '{{ env.LAKE_UNSET }}'", "scripts.0", "LAKE_UNSET is not set"),
        ("- sql", "- nowhere", "scripts", "No SQL script matches 'nowhere'"),
        ("5s", "soon", "supervision.tick_interval", "'soon', which is not a duration"),
        ("5m", "'{{ nobody }}'", "checks.default.max_lag", "'nobody' is undefined"),
        ("/data/more", "''", "other_catalogs.1.warehouse", "is empty"),
        ("http://a:2", "a:2", "flink.sql_gateway_url", "not the address of a REST API"),
        ("name: raw", "metastore: glue\n      name: raw", "other_catalogs.0.metastore", "glue"),
        ("name: raw", "metastore: jdbc\n      name: raw", "other_catalogs.0.metastore", "no uri"),
        ("name: more", "name: '{{ env.LAKE_UNSET }}'", "other_catalogs.1.name", "LAKE_UNSET"),
        ("group: g", "group: a-b", "tables.ods.*.group", "not a valid asset group name"),
        ("team:a", "ann", "tables.ods.*.owners", "Invalid owner 'ann'"),
        ("{a: b}", "{a b: c}", "tables.ods.*.tags", "invalid tag key"),
        ("column: dt", "colum: dt", "tables.ods.*.partitions.colum", "no field colum"),
    ],
)
def test_a_wrong_value_is_told_with_its_line(
    old: str, new: str, field: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKE_UNSET", raising=False)
    text = WRITTEN.replace(old, new, 1)
    error, file = refusal(text)
    assert isinstance(error, ConfigurationError)
    if field == "other_catalogs.1.warehouse":
        new = "warehouse: ''"
    line = line_of(text, "scripts:" if field == "scripts" else new.splitlines()[0])
    assert error.message.startswith(f"{file}:{line}: attributes.{field}: "), error.message
    assert said in error.message
    assert error.__context__ is None  # no stack trace of Dagster's around it


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("rest_url", "rest_urll", "flink.rest_urll"),
        ("tick_interval", "tick_intervall", "supervision.tick_intervall"),
        ("group", "grup", "tables.ods.*.grup"),
        ("warehouse: /data/more", "warehous: /data/more", "other_catalogs.1.warehous"),
        ("  scripts:", "  script:", "script"),
    ],
)
def test_a_typo_is_told_with_its_line(old: str, new: str, field: str) -> None:
    text = WRITTEN.replace(old, new, 1)
    error, file = refusal(text)
    said = str(error)
    assert f"attributes.{field}" in said
    assert f"{file}:{line_of(text, new)}" in said


def test_of_several_documents_in_a_file_the_right_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LAKE_UNSET", raising=False)
    good = WRITTEN.replace("- sql", "- sql/demo_tick.sql")
    bad = good.replace("name: lake", "name: '{{ env.LAKE_UNSET }}'")
    text = f"{good}---\n{bad}"
    error, file = refusal(text)
    assert str(error).startswith(f"{file}:{line_of(text, 'LAKE_UNSET')}: attributes.name: ")


def test_attributes_that_are_missing_are_asked_for() -> None:
    error, _ = refusal("type: lakehouse_dagster.LakehouseComponent\n")
    assert ":1: attributes: LakehouseComponent has no attributes" in str(error)


@pytest.mark.parametrize(
    ("old", "new", "field", "said"),
    [
        (
            "  name: lake",
            "  name: lake\n  corrections: {}",
            "corrections",
            "not supported by this version",
        ),
        ("  name: lake", "  key_prefix: 5", "key_prefix", "is a number, but should be text or a"),
        ("  name: lake", "  key_prefix: [5]", "key_prefix.0", "is a number, but should be text."),
        ("  name: lake", "  variables: {n: 01}", "variables.n", 'Put it in quotes: n: "…"'),
        ("  name: lake", "  materialize_timeout: 10", "materialize_timeout", "Put it in quotes"),
        ("  name: lake", "  name: [lake]", "name", "is a list, but should be text."),
        (
            "  name: lake",
            "  discover: {a: b}",
            "discover",
            "a mapping, but should be true or false",
        ),
        ("  name: lake", "  defs_state: {management_type: A}", "defs_state.management_type", "one"),
        ("tags: {a: b}", "tags: {a: 20260101}", "tables.ods.*.tags.a", "is a number"),
        ("tags: {a: b}", "tags: [a]", "tables.ods.*.tags", "is a list, but should be a mapping"),
        ("owners: [team:a]", "owners: 5", "tables.ods.*.owners", "is a number"),
        (
            "    warehouse: /data/lake",
            "    warehouse:",
            "catalog.warehouse",
            "is empty, but should",
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_told_in_a_sentence(
    old: str, new: str, field: str, said: str
) -> None:
    text = WRITTEN.replace(old, new, 1)
    error, file = refusal(text)
    assert isinstance(error, ConfigurationError)
    place = f"{file}:{line_of(text, new.splitlines()[-1])}: attributes.{field}: "
    assert error.message.startswith(place), error.message
    assert said in str(error)
    assert "pydantic" not in str(error)
    assert "\n" not in str(error)


def test_a_secret_of_a_wrong_type_is_not_repeated() -> None:
    text = WRITTEN.replace("  rest_url", "  auth: {token: 271828}\n    rest_url")
    error, _ = refusal(text)
    assert "attributes.flink.auth.token" in str(error)
    assert "271828" not in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@h/d",
        "postgresql://u@h/d?password=hunter2",
        "postgresql://u:{{ env('LAKE_PASSWORD', 'hunter2') }}@h/d",
        "{{ env('LAKE_URL', 'postgresql://u:hunter2@h/d') }}",
    ],
)
def test_a_password_in_the_url_of_the_system_database_is_refused(url: str) -> None:
    text = WRITTEN.replace("  name: lake", f'  system_database: {{url: "{url}"}}')
    error, file = refusal(text)
    place = f"{file}:{line_of(text, 'system_database')}: attributes.system_database.url: "
    assert str(error).startswith(f"{place}The URL of the system database holds a password.")
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    "url", ["mysql://h/d", "postgresql+asyncpg://h/d", "mysql://u:{{ env.LAKE_PASSWORD }}@h/d"]
)
def test_a_database_that_is_not_supported_is_refused_when_loaded(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", "hunter2")
    text = WRITTEN.replace("  name: lake", f'  system_database: {{url: "{url}"}}')
    error, file = refusal(text)
    place = f"{file}:{line_of(text, 'system_database')}: attributes.system_database.url: "
    assert str(error).startswith(f"{place}The system database ")
    assert "not supported. Write " in str(error)
    assert "hunter2" not in str(error)


def test_an_asset_key_that_two_tables_have_is_told_with_its_line() -> None:
    text = WRITTEN.replace("- sql", "- '*.sql'").replace("ods.*:\n", "ods.a:\n      key: ods/b\n")
    text = text.replace("      partitions:\n        column: dt\n        values: [a]\n", "")
    script = "CREATE DATABASE ods; CREATE TABLE ods.a (x INT); CREATE TABLE ods.b (x INT);"
    error, file = refusal(text, script)
    place = f"{file}:{line_of(text, 'key: ods/b')}: attributes.tables.ods.a.key: "
    assert str(error).startswith(f"{place}What is said in tables gives ods.a and ods.b the same ")


def test_all_mistakes_of_a_file_are_told_at_once() -> None:
    text = WRITTEN.replace("owners: [team:a]", "owners: ann").replace("5s", "soon")
    text = text.replace("http://a:2", "a:2").replace("max_lag: 5m", "max_lagg: 5m")
    error, file = refusal(text)
    wrong = ("sql_gateway_url", "tick_interval", "max_lagg", "owners")
    lines = str(error).splitlines()
    assert len(lines) == len(wrong)
    for line, name in zip(lines, wrong, strict=True):
        assert line.startswith(f"{file}:{line_of(text, name)}: attributes.")
        assert f".{name}: " in line


def test_a_name_that_stands_twice_is_told_with_both_lines() -> None:
    text = WRITTEN.replace("  name: lake", "  start: on_load\n  name: lake\n  start: on_demand")
    error, file = refusal(text)
    first, again = line_of(text, "start: on_load"), line_of(text, "start: on_demand")
    place = f"{file}:{again}: attributes.start: "
    assert str(error).startswith(f"{place}start stands here in line {again}, and already in line ")
    assert f"in line {first}." in str(error)


def alternatives(schema: Any, place: str = "") -> list[str]:
    """Where a checker could only say that no alternative fits."""
    if isinstance(schema, list):
        return [found for item in schema for found in alternatives(item, place)]
    if not isinstance(schema, dict):
        return []
    here = [place] if "anyOf" in schema else []
    return here + [
        f for name, item in schema.items() for f in alternatives(item, f"{place}/{name}")
    ]


def test_the_schema_has_no_alternatives_that_hide_a_typo() -> None:
    schema = LakehouseComponent.get_model_cls().model_json_schema()
    found = alternatives(schema)
    assert [place for place in found if "DefsState" not in place] == []
    assert schema["properties"]["scripts"]["type"] == ["string", "array"]
    assert schema["properties"]["discover"]["type"] == ["boolean", "string", "array"]
