"""What is worth a warning in a script that can be used: each at its place, no value repeated."""

from __future__ import annotations

import pytest

from lakehouse_dagster.sql.model import Project, Severity
from tests.sql.in_process import read_files


def told(found: Project, severity: Severity = Severity.WARNING) -> list[str]:
    return [f"{p.location} {p.message}" for p in found.problems if p.severity is severity]


def one(text: str, **options: object) -> Project:
    return read_files({"s.sql": text}, **options)  # type: ignore[arg-type]


TABLES = "CREATE TABLE ods.a (i INT); CREATE TABLE ods.b (i INT);"


# secrets


@pytest.mark.parametrize(
    ("text", "place", "key"),
    [
        ("CREATE TEMPORARY TABLE k (i INT) WITH ('connector' = 'jdbc',\n 'password' = 'hush')",
         "2:15", "password"),
        ("CREATE TEMPORARY TABLE k (i INT) WITH ('url' = 'jdbc:mysql://u:hush@h/d')",
         "1:48", "url"),
        ("CREATE TEMPORARY TABLE k (i INT) WITH ('url' = 'jdbc:mysql://h/d?password=hush')",
         "1:48", "url"),
        ("CREATE CATALOG c WITH ('type' = 'hive', 's3.secret-key' = 'hush')", "1:59",
         "s3.secret-key"),
        ("SET 's3.access-key' = 'hush'", "1:23", "s3.access-key"),
        ("SET fs.s3a.secret.key = hush", "1:1", "fs.s3a.secret.key"),
        ("CREATE TEMPORARY TABLE k (i INT) WITH ('properties.sasl.jaas.config' = "
         "'x required username=\"${U}\" password=\"hush\";')", "1:72",
         "properties.sasl.jaas.config"),
        ("CREATE TEMPORARY VIEW v AS SELECT * FROM t /*+ OPTIONS('x.token' = 'hush') */", "1:68",
         "x.token"),
        ("CREATE CATALOG c WITH ('type' = 'jdbc', 'pwd' = 'hush')", "1:49", "pwd"),
        ("INSERT INTO ods.a SELECT 1 FROM ods.a WHERE u = 'mongodb://root:hush@h/'", "1:49",
         "an address"),
        ("USE a;\npassword=hush\nUSE CATALOG b", "2:10", "password"),
        ("export DB_PASSWORD=hush\nUSE CATALOG b", "1:20", "PASSWORD"),
        ("api_key: hush;", "1:10", "api_key"),
        ("$ export PASSWORD=hush\nUSE a", "1:19", "PASSWORD"),
        ("-- old password: 'password' = 'hush'\nUSE a", "1:31", "password"),
        ("USE a;\n/* was jdbc://u:hush@h */", "2:17", "an address"),
        ("CREATE TABLE ods.c (a INT) COMMENT 'of jdbc://u:hush@h'", "1:36", "an address"),
        ("CREATE TABLE ods.c (a INT WITH ('password'='hush')", "1:44", "password"),
    ],
)  # fmt: skip
def test_a_secret_in_clear_text_is_pointed_at(text: str, place: str, key: str) -> None:
    found = one(text)
    secrets = [t for t in told(found) if "A secret stands" in t]
    assert secrets == [f"s.sql:{place} A secret stands in the script: the value of {key}."]
    assert "hush" not in repr(found)
    assert "hush" not in "".join(str(problem) for problem in found.problems)


@pytest.mark.parametrize(
    "option",
    ["'password' = '${PW}'", "'url' = 'redis://:${PW}@h'", "'x.token' = '{{ t }}'",
     "'a.jaas.config' = 'x password=\"${PW}\";'", "'key.format' = 'json'", "'password' = ''",
     "'url' = 'jdbc:mysql://h/d?password=${PW}'", "'scan.token.enabled' = 'true'"],
)  # fmt: skip
def test_a_variable_is_no_secret(option: str) -> None:
    found = one(f"CREATE TEMPORARY TABLE k (i INT) WITH ({option})", environ={"PW": "", "t": ""})
    assert found.problems == ()


@pytest.mark.parametrize(
    "text",
    ["-- the password: see the vault\nUSE a", "-- 'password' = '${PW}'\nUSE a",
     "-- http://host:8081/a@b\nUSE a", "USE a; -- token = true"],
)  # fmt: skip
def test_comments_about_secrets_are_none(text: str) -> None:
    assert one(text).problems == ()


@pytest.mark.parametrize("line", ["password=hush", "export PASSWORD=hush", "mysql -p hush"])
def test_of_a_pasted_line_only_keywords_are_shown(line: str) -> None:
    found = one(f"USE a;\n{line};\nUSE b")
    (starts,) = {p.statement_start for p in found.problems}
    assert starts == "…"


# functions


def test_a_function_that_nobody_makes_is_pointed_at() -> None:
    found = one(
        TABLES + "CREATE TEMPORARY FUNCTION mine AS 'a.B';\n"
        "INSERT INTO ods.a SELECT Mine(i) + nobodys(JSON_VALUE(s, '$.x')) + IF(a, b, c)\n"
        "FROM ods.b /*+ OPTIONS('x' = 'y') */, LATERAL TABLE(explode_it(i)) AS t (x), "
        "TABLE(TUMBLE(TABLE ods.b, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
    )
    assert told(found) == [
        "s.sql:2:36 Flink has no function nobodys, and no script creates it.",
        "s.sql:3:53 Flink has no function explode_it, and no script creates it.",
    ]


@pytest.mark.parametrize("reason", ["LOAD MODULE hive", "CREATE CATALOG h WITH ('type' = 'hive')"])
def test_functions_may_come_from_modules_and_catalogs(reason: str) -> None:
    assert told(one(f"{TABLES} {reason}; INSERT INTO ods.a SELECT nobodys(i) FROM ods.b")) == []


def test_a_function_of_another_script_is_known() -> None:
    files = {
        "a.sql": "CREATE FUNCTION ods.f AS 'a.B'",
        "b.sql": f"{TABLES} INSERT INTO ods.a SELECT f(i) FROM ods.b",
    }
    assert told(read_files(files)) == []


# options


def test_a_misspelt_option_is_advice() -> None:
    found = one("SET 'pipeline.nmae' = 'x'; SET 'execution.checkpointing.intervall' = '1 min';"
                "SET 'my.own.option' = 'y'; SET 'pipeline.name' = 'z'")  # fmt: skip
    assert told(found, Severity.ADVICE) == [
        "s.sql:1:1 Flink has no option pipeline.nmae; what it does not know it ignores.",
        "s.sql:1:28 Flink has no option execution.checkpointing.intervall; what it does not know "
        "it ignores.",
    ]
    assert told(found) == []


# variables


def test_a_variable_without_a_value_is_told_once_for_each_script() -> None:
    text = "SET 'a' = '${A}'; SET 'b' = '${A} ${B} ${C:-c} {{ D }}'"
    assert told(one(text, variables={"D": "d"})) == [
        "s.sql:1:12 Neither the environment nor the project gives A.",
        "s.sql:1:35 Neither the environment nor the project gives B.",
    ]
    assert told(one(text, variables={"D": "d"}, environ={"A": "", "B": ""})) == []


def test_names_are_read_with_the_projects_variables_and_with_defaults() -> None:
    found = one(
        "SET 'pipeline.name' = '${env}_job'; CREATE TABLE ${db}.`t_{{ env }}` (i INT);"
        "CREATE TEMPORARY TABLE k (i INT) WITH ('connector' = 'kafka', 'topic' = '${T:-t}-{{env}}',"
        "${more}); INSERT INTO {{ db }}.t_${env} SELECT * FROM k",
        variables={"db": "ods", "env": "prod", "more": "'x' = 'hush'"},
    )
    (job,) = found.jobs
    assert (job.name, [sink.key for sink in job.sinks]) == ("prod_job", ["ods.t_prod"])
    assert job.sources == (("kafka", "t-prod"),)
    assert "${db}" in job.setup[0].text
    assert found.sources[0].options == {
        "connector": "kafka", "topic": "${T:-t}-{{env}}", "x": "****"
    }  # fmt: skip
    assert found.problems == ()
    assert "hush" not in repr(found)


@pytest.mark.parametrize("name", ["${X}", "${secret_values.X}", "{{ x }}", "$VAR", "`a_${X}`"])
def test_a_name_that_depends_on_an_unset_variable_is_unknown(name: str) -> None:
    found = one(f"{TABLES} INSERT INTO ods.a SELECT * FROM ods.{name}")
    (job,) = found.jobs
    assert (job.reads, job.dependencies_known) == ((), False)
    assert "depends on $" in told(found)[0]


def test_a_value_is_not_repeated_where_the_statement_cannot_be_read() -> None:
    found = one(f"{TABLES} INSERT INTO ods.a SELECT ${{x}} FROM ods.b", variables={"x": "?? hush"})
    assert len(told(found)) == 1
    assert "hush" not in str(found.problems[0])


# jobs that get in each other's way


def test_a_table_that_two_jobs_write_is_warned_of_unless_it_is_made_for_it() -> None:
    inserts = "INSERT INTO ods.a SELECT 1;\nINSERT INTO ods.a SELECT 2"
    assert told(one(f"{TABLES}\n{inserts}")) == ["s.sql:3:1 The jobs s and s_a both write ods.a."]
    for engine in ("partial-update", "aggregation"):
        table = f"CREATE TABLE ods.a (i INT) WITH ('merge-engine' = '{engine}');"
        assert told(one(table + inserts)) == []


def test_jobs_that_read_what_they_write_are_warned_of() -> None:
    found = read_files(
        {
            "a.sql": f"{TABLES} INSERT INTO ods.b SELECT * FROM ods.b",
            "b.sql": "INSERT INTO ods.a SELECT * FROM ods.c",
            "c.sql": "CREATE TABLE ods.c (i INT); INSERT INTO ods.c SELECT * FROM ods.a",
        }
    )
    assert told(found) == [
        "a.sql:1:57 The job a reads ods.b, which it writes.",
        "b.sql:1:1 Tables are made from each other: ods.a <- ods.c <- ods.a.",
    ]


def test_sources_that_another_script_only_writes_are_none() -> None:
    table = "CREATE TEMPORARY TABLE {} (i INT) WITH ('connector' = 'kafka', 'topic' = '{}');"
    found = read_files(
        {
            "i.sql": table.format("k", "out") + table.format("l", "in"),
            "x.sql": f"{TABLES} INSERT INTO k SELECT * FROM ods.a",
        },
        session=["i.sql"],
    )
    assert [source.asset_key for source in found.sources] == [("kafka", "in")]


def test_a_chain_of_thousands_of_tables_ends_and_only_what_is_in_a_circle_is_told_of() -> None:
    script = "".join(f"CREATE TABLE ods.t{n} (i INT);\n" for n in range(600))
    script += "".join(f"INSERT INTO ods.t{n} SELECT i FROM ods.t{n + 1};\n" for n in range(599))
    script += "INSERT INTO ods.t599 SELECT i FROM ods.t598;\n"
    circles = [t for t in told(one(script)) if "made from each other" in t]
    assert circles == [
        "s.sql:1199:1 Tables are made from each other: ods.t598 <- ods.t599 <- ods.t598."
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "'pipeline.name' is empty: the job is named s, after its file."),
        ("x" * 300, "The job's name has 300 characters; most pages show only its beginning."),
        ("a\nb", "The job's name holds line breaks, slashes or the like"),
        ("../x", "The job's name holds line breaks, slashes or the like"),
    ],
)
def test_of_a_name_that_is_hardly_one_is_said_what_becomes_of_it(name: str, message: str) -> None:
    found = one(f"{TABLES} SET 'pipeline.name' = '{name}'; INSERT INTO ods.a SELECT i FROM ods.b")
    (warning,) = told(found)
    assert message in warning
    assert [job.name for job in found.jobs] == [name or "s"]


def test_a_table_without_a_name_is_warned_of() -> None:
    assert told(one("CREATE TABLE ods.`` (i INT)")) == [
        "s.sql:1:1 The table's name is empty: no catalog can hold such a table."
    ]
