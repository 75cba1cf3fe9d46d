"""A file of variables gives text as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.sql.variables_file import read_variables


def written(folder: Path, text: str) -> Path:
    path = folder / "vars.yaml"
    path.write_text(text)
    return path


def test_values_are_text_and_nested_names_have_dots(tmp_path: Path) -> None:
    text = "day: 20260101\nid: 007\non: yes\nempty: ''\nsecret_values: {kafka: {user: ann}}\n"
    assert read_variables(written(tmp_path, text)) == {
        "day": "20260101",
        "id": "007",
        "on": "yes",
        "empty": "",
        "secret_values.kafka.user": "ann",
    }
    assert read_variables(written(tmp_path, "")) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1]", "a in .*vars.yaml is a list"),
        ("just text", "holds no names"),
        ("a: b\nc: : d", r"vars.yaml:2:4 is not YAML"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_variables(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml cannot be read"):
        read_variables(tmp_path / "nowhere.yaml")
