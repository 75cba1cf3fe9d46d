"""The real gateway reads hostile names and values as what they are, and executes none of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakehouse_dagster.errors import UnsafeIdentifierError
from lakehouse_dagster.flink import (
    FlinkCluster,
    Session,
    create_catalog,
    identifier,
    options_clause,
    qualified,
    string_literal,
    use_catalog,
)
from tests.conftest import RunningFlink
from tests.flink.hostile import PIECES

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

TEXTS = (
    *PIECES,
    *(f"x{piece}y" for piece in PIECES),
    "' || 'joined",
    "'); DROP TABLE canary; --",
    "`; DROP TABLE canary; --",
    "` AS SELECT 1; DROP TABLE canary; --",
    "*/ ' ; DROP TABLE canary; /* `",
    "x" * 256,
    "😀" * 128,
    "",
)


@pytest.fixture
def session(flink_stack: RunningFlink) -> Iterator[Session]:
    cluster = FlinkCluster(flink_stack.rest_url, flink_stack.sql_gateway_url)
    with cluster.sql_gateway() as gateway:
        session = gateway.open_session("quoting", {"execution.runtime-mode": "batch"})
        session.execute("CREATE TABLE canary (a INT) WITH ('connector'='blackhole')")
        try:
            yield session
            assert ("canary",) in session.execute("SHOW TABLES").rows
        finally:
            session.delete()


def quotable(texts: tuple[str, ...], quote: object) -> list[str]:
    accepted = []
    for text in texts:
        try:
            quote(text)  # type: ignore[operator]
        except UnsafeIdentifierError:
            continue
        accepted.append(text)
    return accepted


def test_a_literal_comes_back_as_the_value_it_was(session: Session) -> None:
    values = quotable(TEXTS, string_literal)
    assert len(values) > 80
    result = session.execute(
        f"SELECT {', '.join(string_literal(value) for value in values)}", timeout_seconds=180
    )
    assert result.rows == (tuple(values),)


def test_a_view_of_a_hostile_name_has_that_name(session: Session) -> None:
    names = quotable(TEXTS, identifier)
    assert len(names) > 60
    for name in names:
        session.execute(
            f"CREATE TEMPORARY VIEW {identifier(name)} AS SELECT 1 AS {identifier(name)}"
        )
    assert {name for (name,) in session.execute("SHOW VIEWS").rows} == set(names)
    for name in names:
        described = session.execute(f"DESCRIBE {identifier(name)}")
        assert described.rows[0][0] == name


def test_a_table_keeps_hostile_option_values(session: Session) -> None:
    options = {
        "connector": "filesystem",
        "path": "file:///tmp/it's a `path`; -- ${HOME} \\",
        "format": "raw",
        "raw.charset": "UTF-8",
    }
    session.execute(f"CREATE TABLE hostile (a STRING) WITH {options_clause(options)}")
    ((shown,),) = session.execute("SHOW CREATE TABLE hostile").rows
    for key, value in options.items():
        assert f"{string_literal(key)} = {string_literal(value)}" in shown


def test_catalogs_and_databases_of_hostile_names_are_used_and_named_apart(session: Session) -> None:
    catalog, database, table = "la`ke;1'", "db.with-dots `", "t`.`x"
    session.execute(create_catalog(catalog, {"type": "generic_in_memory"}))
    session.execute(f"CREATE DATABASE {qualified(catalog, database)}")
    session.execute(
        f"CREATE TABLE {qualified(catalog, database, table)} (a INT) "
        f"WITH {options_clause({'connector': 'blackhole'})}"
    )
    session.execute(use_catalog(catalog))
    assert session.execute("SHOW CURRENT CATALOG").rows == ((catalog,),)
    session.execute(f"USE {identifier(database)}")
    assert session.execute("SHOW TABLES").rows == ((table,),)
    session.execute(use_catalog("default_catalog"))
