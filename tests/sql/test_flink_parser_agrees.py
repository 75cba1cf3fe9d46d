"""Flink's own parser is the judge: what it takes we read, what we write it reads alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings

from tests.sql import generated, grammar
from tests.sql.samples import DECLARATIONS, INSERTS
from tests.sql.test_dialect import REFUSED
from tests.support.flink_parser import FlinkSqlParser, Verdict

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

SAMPLES = [*DECLARATIONS, *(sql for sql, *_ in INSERTS.values())]


@pytest.fixture(scope="module")
def flink(flink_engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkSqlParser]:
    with FlinkSqlParser(flink_engine, tmp_path_factory.mktemp("parser")) as parser:
        yield parser


def rewritten(sql: str) -> str:
    return sqlglot.parse_one(sql, read="flink").sql("flink")


def accepted(flink: FlinkSqlParser, sql: str) -> Verdict:
    verdict = flink.ask(sql)
    assert verdict.accepted, f"{verdict.text}\n{sql}"
    return verdict


@pytest.mark.parametrize("sql", grammar.STATEMENTS)
def test_flink_reads_every_form_as_we_write_it(flink: FlinkSqlParser, sql: str) -> None:
    assert accepted(flink, rewritten(sql)) == accepted(flink, sql)


@pytest.mark.parametrize("sql", grammar.ONLY_FROM_2_0)
def test_flink_2_reads_its_own_forms_as_we_write_them(flink: FlinkSqlParser, sql: str) -> None:
    if flink.engine == "flink-1.20":
        assert rewritten(sql)
    else:
        assert accepted(flink, rewritten(sql)) == accepted(flink, sql)


@pytest.mark.parametrize("sql", grammar.SIMPLIFIED)
def test_what_is_written_in_another_way_was_flink_sql_too(flink: FlinkSqlParser, sql: str) -> None:
    accepted(flink, sql)
    accepted(flink, rewritten(sql))


def test_flink_reads_the_samples_as_we_write_them(flink: FlinkSqlParser) -> None:
    differing = [
        sql
        for sql in SAMPLES
        if accepted(flink, rewritten(sql)) != accepted(flink, grammar.SIMPLIFIED.get(sql, sql))
    ]
    assert differing == WRITTEN_IN_ANOTHER_WAY


WRITTEN_IN_ANOTHER_WAY = [
    sql
    for sql in SAMPLES
    if sql.startswith(("INSERT INTO app.numbers TABLE", "EXECUTE INSERT"))
    or "WITH LOCAL TIME ZONE" in sql
    or "DESC NULLS LAST" in sql
]
"""As ``grammar.SIMPLIFIED`` has it."""


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(generated.STATEMENTS)
def test_flink_reads_made_up_statements_as_we_write_them(flink: FlinkSqlParser, sql: str) -> None:
    assert accepted(flink, rewritten(sql)) == accepted(flink, sql)


@pytest.mark.parametrize("sql", REFUSED)
def test_flink_too_refuses_what_the_dialect_refuses(flink: FlinkSqlParser, sql: str) -> None:
    assert not flink.ask(sql).accepted


@pytest.mark.parametrize("sql", grammar.READ_ALL_THE_SAME)
def test_only_these_are_read_though_flink_refuses_them(flink: FlinkSqlParser, sql: str) -> None:
    assert not flink.ask(sql).accepted
    assert rewritten(sql)
