"""Root causes are short, and neither row data nor secrets survive in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_dagster.flink import redact
from lakehouse_dagster.flink.redaction import (
    MAX_ROOT_CAUSE_CHARACTERS,
    root_cause,
    secrets_in,
)

DATUM = "Ann O'Hara, 4711"


@pytest.mark.parametrize(
    "text",
    [
        f"Record is corrupt: +I[1, {DATUM}, [2]]",
        f"Cannot write -U(1,{DATUM})",
        f'Failed to deserialize JSON \'{{"name": "{DATUM}"}}\'.',
        f"Failed to deserialize CSV row '{DATUM}'.",
        f"Corrupt Debezium JSON message '{DATUM}'",
        f'Unexpected event {{"name": "{DATUM}"}} here',
        f'For input string: "{DATUM}"',
        f"For input string: '{DATUM}'. Invalid character found.",
        f"Text '{DATUM}' could not be parsed at index 0",
        f"Cannot parse '{DATUM}' as BOOLEAN.",
        f"Unrecognized token '{DATUM}': was expecting (JSON String, Number or token 'null')",
        f'Unexpected end [Source: (String)"{DATUM}"; line: 1, column: 2]',
        f"ConsumerRecord(topic = t, partition = 0, offset = 5, headers = [], value = {DATUM})",
    ],
)
def test_row_data_is_masked(text: str) -> None:
    shown = redact(text)
    assert "****" in shown
    assert not any(part in shown for part in ("Ann", "Hara", "4711"))


def test_what_helps_to_find_the_record_stays() -> None:
    record = "ConsumerRecord(topic = orders, partition = 3, offset = 5, key = null, value = secret)"
    assert redact(record) == "ConsumerRecord(topic = orders, partition = 3, offset = 5, ****"


@pytest.mark.parametrize(
    "text",
    [
        "Column 'dt' not found in any table",
        "Could not find any factory for identifier 'json' that implements 'FormatFactory'.",
        "Cannot discover a connector using option: 'connector'='foo'",
        "Cannot find checkpoint or savepoint file/directory 's3://b/chk-1' on file system 's3'.",
        "Cannot map checkpoint/savepoint state for operator 90bea66d to the new program.",
        "Job has already been submitted.",
        "java.lang.OutOfMemoryError: Direct buffer memory",
    ],
)
def test_what_says_what_is_wrong_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'password'='hunter2'", "'password'=****"),
        ("'jdbc.password' = 'it''s'", "'jdbc.password' = ****"),
        ("s3.secret-key=hunter2, s3.path=x", "s3.secret-key=****, s3.path=x"),
        ("fs.s3a.access.key: hunter2", "fs.s3a.access.key: ****"),
        ('sasl.jaas.config=x password="hunter2";', "sasl.jaas.config=**** password=****;"),
        ("jdbc:mysql://ann:hunter2@db/x", "jdbc:mysql://****@db/x"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: Bearer ****"),
        (
            "Could not parse value 'hunter2' for key 'x.y'.",
            "Could not parse value **** for key 'x.y'.",
        ),
    ],
)
def test_secrets_are_masked_and_their_keys_stay(text: str, expected: str) -> None:
    assert redact(text) == expected


@given(st.text(alphabet="xyzäß19!#%&*+-_~ü", min_size=3, max_size=20))
def test_a_known_secret_is_masked_wherever_it_stands(secret: str) -> None:
    assert secret not in redact(f"cannot log in with {secret}!", secrets=[secret]).replace(
        "****", ""
    )


def test_secrets_are_found_in_statements_and_options() -> None:
    statement = """-- it's a comment
    CREATE TABLE t (a INT) WITH ('connector' = 'mysql-cdc', 'username'='ann',
      'password' = 'hun''ter2', 's3.secret-key'='s3cr3t', 'token' = '')"""
    assert secrets_in(statement, {"fs.oss.accessKeySecret": "0ss", "x": "y"}) == {
        "hun'ter2",
        "s3cr3t",
        "0ss",
    }


GATEWAY_ERROR = """Internal server error.
<Exception on server side:
org.apache.flink.table.gateway.api.utils.SqlGatewayException: Failed to fetchResults.
\tat org.apache.flink.table.gateway.rest.Handler.handle(Handler.java:91)
Caused by: org.apache.flink.table.api.ValidationException: SQL validation failed. From line 1
\tat org.apache.flink.table.planner.X.validate(X.scala:189)
Caused by: org.apache.calcite.runtime.CalciteContextException: From line 1, column 8 to line 1, \
column 11: Column 'nope' not found in any table
\tat java.base/jdk.internal.reflect.Y.newInstance(Y.java:77)
\t... 6 more
Caused by: org.apache.calcite.sql.validate.SqlValidatorException: Column 'nope' not found in any \
table
\t... 11 more

End of exception on server side>"""


def test_the_last_cause_is_kept_with_the_place_in_the_statement() -> None:
    assert root_cause(GATEWAY_ERROR) == (
        "SqlValidatorException: From line 1, column 8 to line 1, column 11: "
        "Column 'nope' not found in any table"
    )


def test_a_cause_told_by_another_process_is_found() -> None:
    text = """org.apache.flink.table.api.TableException: Failed to execute sql
\tat a.B.c(B.java:1)
Caused by: org.apache.flink.runtime.rest.util.RestClientException: [Internal server error., \
<Exception on server side:
org.apache.flink.runtime.client.DuplicateJobSubmissionException: Job has already been submitted.
\tat a.B.c(B.java:1)

End of exception on server side>]
\tat a.B.c(B.java:1)"""
    assert root_cause(text) == "DuplicateJobSubmissionException: Job has already been submitted"


def test_a_message_of_several_lines_is_kept_whole_but_the_parser_s_list_of_tokens_is_not() -> None:
    missing = """org.apache.flink.table.api.ValidationException: One or more required options are \
missing.

Missing required options are:

path
\tat a.B.c(B.java:1)"""
    assert root_cause(missing) == (
        "ValidationException: One or more required options are missing. "
        "Missing required options are: path"
    )
    parse = """Caused by: org.apache.flink.sql.parser.ParseException: Encountered "x" at line 1.
Was expecting one of:
    "LATERAL" ...
    "TABLE" ...
\tat a.B.c(B.java:1)"""
    assert root_cause(parse) == 'ParseException: Encountered "x" at line 1'


def test_causes_of_suppressed_exceptions_are_not_the_root_cause() -> None:
    text = """java.lang.RuntimeException: java.io.IOException: disk full
\tat a.B.c(B.java:1)
\tSuppressed: java.lang.IllegalStateException: closed
\t\tat a.B.c(B.java:1)
\tCaused by: java.lang.Error: not this
Caused by: java.io.IOException: disk full
\t... 5 more"""
    assert root_cause(text) == "IOException: disk full"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Could not map response to JSON.", "Could not map response to JSON"),
        ("java.lang.NullPointerException", "NullPointerException"),
        ("java.lang.NullPointerException\n\tat a.B.c(B.java:1)", "NullPointerException"),
        ("", "no reason given"),
        ("a.b.Outer$Inner: x", "Inner: x"),
    ],
)
def test_what_is_not_a_stack_trace_is_kept_in_one_line(text: str, expected: str) -> None:
    assert root_cause(text) == expected


@given(st.text(max_size=300))
def test_any_text_gives_a_bounded_line(text: str) -> None:
    cause = root_cause(text * 20)
    assert cause
    assert len(cause) <= MAX_ROOT_CAUSE_CHARACTERS
