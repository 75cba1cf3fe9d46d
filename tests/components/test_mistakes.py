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


def refusal(text: str) -> tuple[BaseException, Path]:
    """What Dagster's exception was made from, and the file."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=LakehouseComponent)
        (path / "defs.yaml").write_text(text)
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
        ("/data/more", "''", "other_catalogs.1", "is empty"),
        ("name: more", "name: '{{ env.LAKE_UNSET }}'", "other_catalogs.1.name", "LAKE_UNSET"),
        ("group: g", "group: a-b", "tables.ods.*.group", "not a valid asset group name"),
        ("team:a", "ann", "tables.ods.*.owners", "Invalid owner 'ann'"),
        ("{a: b}", "{a b: c}", "tables.ods.*.tags", "invalid tag key"),
        ("column: dt", "colum: dt", "tables.ods.*.partitions", "no field colum"),
    ],
)
def test_a_wrong_value_is_told_with_its_line(
    old: str, new: str, field: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKE_UNSET", raising=False)
    text = WRITTEN.replace(old, new, 1)
    error, file = refusal(text)
    assert isinstance(error, ConfigurationError)
    line = line_of(
        text,
        new
        if field not in ("scripts", "other_catalogs.1")
        else {"scripts": "scripts:", "other_catalogs.1": "name: more"}[field],
    )
    if field.endswith("partitions"):
        line = line_of(text, "partitions:")
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
    assert "has no attributes" in str(error)


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
