"""``lakehouse plan``: what scripts define, as a tree and as JSON."""

from __future__ import annotations

import importlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lakehouse_dagster.cli import main
from lakehouse_dagster.sql import read_project

plan_command = importlib.import_module("lakehouse_dagster.cli.plan")

SCRIPT = """\
CREATE TABLE IF NOT EXISTS ods.work_order (
  id BIGINT COMMENT 'the ticket',
  dt STRING,
  amount DECIMAL(10, 2),
  PRIMARY KEY (dt, id) NOT ENFORCED
) PARTITIONED BY (dt) WITH ('bucket' = '2');
CREATE TEMPORARY TABLE src (id BIGINT, day STRING, price DECIMAL(10, 2), status STRING)
WITH ('connector' = 'kafka', 'topic' = 'orders');
SET 'pipeline.name' = 'ods_work_order';
SET 'execution.checkpointing.interval' = '1 min';
INSERT INTO ods.work_order SELECT id, day, price * 2 FROM src WHERE status <> 'draft';
"""


def plan(folder: Path, *arguments: str, **scripts: str) -> Result:
    for name, text in scripts.items():
        (folder / f"{name}.sql").write_text(text)
    return CliRunner().invoke(main, ["plan", str(folder), *arguments])


def documents(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)["scripts"]
    return found


def test_the_document_holds_tables_sources_jobs_and_lineage(tmp_path: Path) -> None:
    (script,) = documents(plan(tmp_path, "--json", orders=SCRIPT))
    (table,) = script["tables"]
    assert table["name"] == "lake.ods.work_order"
    assert table["columns"][0] == {
        "name": "id",
        "type": "BIGINT",
        "nullable": False,
        "comment": "the ticket",
    }
    assert (table["primary_key"], table["partition_keys"]) == (["dt", "id"], ["dt"])
    assert table["options"] == {"bucket": "2"}
    assert script["sources"] == [
        {"name": "src", "connector": "kafka", "asset_key": ["kafka", "orders"]}
    ]
    (job,) = script["jobs"]
    assert (job["name"], job["sinks"], job["reads"]) == (
        "ods_work_order",
        ["lake.ods.work_order"],
        ["kafka/orders"],
    )
    assert job["column_lineage"] == {
        "lake.ods.work_order": {
            "id": [["kafka/orders", "id"]],
            "dt": [["kafka/orders", "day"]],
            "amount": [["kafka/orders", "price"]],
        }
    }
    assert job["row_filters"] == {"lake.ods.work_order": [["kafka/orders", "status"]]}
    assert job["not_exact"] == {}
    assert script["problems"] == []


def test_the_tree_says_the_same(tmp_path: Path) -> None:
    shown = plan(tmp_path, orders=SCRIPT).stdout
    assert "table lake.ods.work_order  (primary key dt, id; partitioned by dt)" in shown
    assert "id BIGINT NOT NULL  the ticket" in shown
    assert "source kafka/orders  (src, kafka)" in shown
    assert "amount ← kafka/orders.price" in shown
    assert "rows ← kafka/orders.status" in shown
    assert "1 scripts, 1 tables, 1 sources, 1 jobs; 0 errors" in shown


def test_an_error_has_its_place_and_the_exit_code_of_a_refusal(tmp_path: Path) -> None:
    result = plan(tmp_path, "--json", a=SCRIPT, b=SCRIPT.replace("'2'", "'4'"))
    assert result.exit_code == 1
    problems = [p for script in documents(result) for p in script["problems"]]
    assert {p["severity"] for p in problems} == {"error"}
    twice = next(p for p in problems if "declared differently" in p["message"])
    assert (twice["line"], twice["column"]) == (1, 1)


def test_the_only_paimon_catalog_that_the_scripts_create_is_the_lake(tmp_path: Path) -> None:
    own = "CREATE CATALOG `my lake` WITH ('type' = 'paimon', 'warehouse' = 'file:///w');\n"
    own += "USE CATALOG `my lake`;\n"
    (script,) = documents(plan(tmp_path, "--json", orders=own + SCRIPT))
    assert script["tables"][0]["name"] == "my lake.ods.work_order"


def test_session_files_come_first(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    (before / "init.sql").write_text("SET 'pipeline.name' = 'from_the_session_file';")
    scripts = tmp_path / "sql"
    scripts.mkdir()
    unnamed = SCRIPT.replace("SET 'pipeline.name' = 'ods_work_order';\n", "")
    found = documents(
        plan(scripts, "--json", "--session", str(before / "init.sql"), orders=unnamed)
    )
    assert [job["name"] for script in found for job in script["jobs"]] == ["from_the_session_file"]


def test_a_path_without_scripts_is_refused(tmp_path: Path) -> None:
    result = plan(tmp_path)
    assert result.exit_code == 1
    assert "No SQL script matches" in result.stderr


ADVICE = {
    "no name": (
        SCRIPT.replace("SET 'pipeline.name' = 'ods_work_order';\n", ""),
        (10, "The job has no name of its own"),
    ),
    "no checkpoints": (
        SCRIPT.replace("SET 'execution.checkpointing.interval' = '1 min';\n", ""),
        (10, "Nothing sets execution.checkpointing.interval"),
    ),
    "checkpoints too often": (
        SCRIPT.replace("1 min", "5 s"),
        (10, "execution.checkpointing.interval is 5 s: each checkpoint writes"),
    ),
    "checkpoints too rarely": (
        SCRIPT.replace("1 min", "300000"),
        (10, "execution.checkpointing.interval is 300000: data becomes visible"),
    ),
    "many buckets": (
        SCRIPT.replace("'2'", "'256'"),
        (6, "bucket is 256: every partition has so many"),
    ),
    "small buffer": (
        SCRIPT.replace("'2'", "'2',\n 'write-buffer-size' = '16 mb'"),
        (7, "write-buffer-size is 16 mb: every full buffer becomes a file"),
    ),
    "short retention": (
        SCRIPT.replace("'2'", "'2', 'snapshot.time-retained' = '5 min'"),
        (6, "snapshot.time-retained is 5 min: a reader that lags"),
    ),
    "partition outside the key": (
        SCRIPT.replace("PRIMARY KEY (dt, id)", "PRIMARY KEY (id)"),
        (1, "The primary key of ods.work_order lacks dt"),
    ),
    "clock": (
        SCRIPT.replace("price * 2", "CAST(NOW() AS DECIMAL(10, 2))"),
        (11, "NOW gives another answer each time"),
    ),
    "deduplication": (
        SCRIPT.replace(
            "FROM src WHERE",
            "FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY day DESC) AS rn\n"
            "FROM src) WHERE rn = 1 AND",
        ),
        (11, "The query removes duplicates by ROW_NUMBER"),
    ),
    "no changelog": (
        SCRIPT + "CREATE TABLE dwd.o (id BIGINT) ;\n"
        "SET 'pipeline.name' = 'dwd'; INSERT INTO dwd.o SELECT id FROM ods.work_order;",
        (1, "dwd reads ods.work_order as a stream, but it keeps no changelog"),
    ),
    "two writers": (
        SCRIPT.replace("WITH ('bucket' = '2')", "")
        + "SET 'pipeline.name' = 'second';\n"
        + "INSERT INTO ods.work_order SELECT id, day, price FROM src;",
        (13, "ods_work_order and second write ods.work_order, whose buckets are dynamic"),
    ),
}


@pytest.mark.parametrize("case", ADVICE)
def test_advice_has_its_reason_and_its_line(tmp_path: Path, case: str) -> None:
    text, (line, said) = ADVICE[case]
    (script,) = documents(plan(tmp_path, "--json", orders=text))
    advice = [p for p in script["problems"] if p["severity"] == "advice"]
    found = [p for p in advice if said in p["message"]]
    assert [p["line"] for p in found] == [line], advice
    assert found[0]["remedy"]


def test_a_lookup_as_of_now_is_no_result_that_cannot_be_repeated(tmp_path: Path) -> None:
    lookup = SCRIPT.replace(
        "FROM src", "FROM src JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON src.id = d.k"
    ).replace(
        "SET 'pipeline",
        "CREATE TEMPORARY TABLE d (k BIGINT) WITH ('connector' = 'x');\nSET 'pipeline",
        1,
    )
    (script,) = documents(plan(tmp_path, "--json", orders=lookup))
    assert [p["message"] for p in script["problems"] if "each time" in p["message"]] == []


def test_names_cannot_steer_the_terminal_or_break_the_tree(tmp_path: Path) -> None:
    script = (
        "CREATE TABLE ods.`\x1b[31mred` (`new\nline` INT);\nINSERT INTO ods.`\x1b[31mred` SELECT 1;"
    )
    shown = plan(tmp_path, bad=script).stdout
    assert "\x1b" not in shown
    assert "table lake.ods.`\\x1b[31mred`" in shown
    assert "new\\nline ← no column" in shown


def test_the_tree_says_what_is_read_once_and_where_a_dot_is_part_of_a_name(tmp_path: Path) -> None:
    script = (
        "CREATE TABLE ods.`a.b` (i INT);\nCREATE TABLE ods.c AS SELECT i AS j FROM ods.`a.b`;\n"
        "INSERT INTO ods.`a.b` SELECT i FROM ods.`a.b`;\nINSERT INTO ods.`a.b` SELECT x FROM ods.n;"
    )
    result = plan(tmp_path, s=script)
    assert "reads itself" in result.stdout
    assert "j ← lake.ods.`a.b`.i" in result.stdout
    assert "filled once from lake.ods.`a.b`" in result.stdout
    (document,) = documents(plan(tmp_path, "--json"))
    assert document["tables"][1]["filled_by"] == {
        "reads": ["lake.ods.a.b"],
        "dependencies_known": True,
        "column_lineage": {"j": [["lake.ods.a.b", "i"]]},
    }
    places = [(p["line"], p["column"]) for p in document["problems"]]
    assert places == sorted(places)
    (unknown,) = [p for p in document["problems"] if "no script declares" in p["message"]]
    assert (unknown["line"], unknown["column"]) == (4, 37)
    assert sum("checkpointing.interval" in p["message"] for p in document["problems"]) == 1


def test_a_long_reading_tells_that_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    echo = plan_command.click.echo

    def hear(message: str, *, err: bool = False) -> None:
        echo(message, err=err)
        told.set()

    def slow(*arguments: Any, **options: Any) -> Any:
        assert told.wait(60)
        return read_project(*arguments, **options)

    monkeypatch.setattr(plan_command.click, "echo", hear)
    monkeypatch.setattr(plan_command, "_PROGRESS_SECONDS", 0.01)
    monkeypatch.setattr(plan_command, "read_project", slow)
    result = plan(tmp_path, "--json", orders=SCRIPT)
    assert "Reading 1 scripts" in result.stderr
    assert documents(result)[0]["problems"] == []


def test_of_many_problems_of_a_kind_the_tree_shows_a_hundred(tmp_path: Path) -> None:
    script = "this is no SQL;\n" * 150 + "CREATE TABLE ods.t (i INT);"
    shown = plan(tmp_path, s=script).stdout
    assert shown.count("begins with no known keyword") == 100
    assert "and 50 more of: Correct it." in shown
    assert "150 warnings" in shown
    (document,) = documents(plan(tmp_path, "--json"))
    assert len(document["problems"]) == 150
