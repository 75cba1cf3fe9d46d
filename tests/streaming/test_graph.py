"""Scripts become an asset graph that always loads, and shows what a person wants to know."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakehouse_dagster.streaming.graph import AssetGraph
from lakehouse_dagster.streaming.names import dagster_name
from tests.streaming.making import job, load, source, table


def graph(folder: Path, scripts: Mapping[str, str], **lakehouse: Any) -> AssetGraph:
    """The graph of the scripts, after Dagster has accepted it."""
    lake = load(folder, scripts, **lakehouse)
    dg.Definitions.validate_loadable(lake.definitions())
    return lake.graph


def key(text: str) -> dg.AssetKey:
    return dg.AssetKey(text.split("/"))


def deps(spec: dg.AssetSpec) -> set[str]:
    return {dep.asset_key.to_user_string() for dep in spec.deps}


def test_tables_sources_and_their_dependencies_become_assets(tmp_path: Path) -> None:
    made = graph(
        tmp_path,
        {
            "ods": table("ods.a") + source("a", "shop.a") + job("ods_a", "ods.a", "a"),
            "ods_b": table("ods.b") + source("b") + job("ods_b", "ods.b", "b"),
            "dwd": table("dwd.c") + job("dwd_c", "dwd.c", "ods.a", "ods.b"),
            "extra": table("ods.lonely"),
        },
    )
    assert {name: spec.key for name, spec in made.tables.items()} == {
        "ods.a": key("ods/a"),
        "ods.b": key("ods/b"),
        "ods.lonely": key("ods/lonely"),
        "dwd.c": key("dwd/c"),
    }
    assert deps(made.tables["ods.a"]) == {"kafka/shop.a"}
    assert deps(made.tables["dwd.c"]) == {"ods/a", "ods/b"}
    assert deps(made.tables["ods.lonely"]) == set()
    assert set(made.outside) == {("kafka", "shop.a"), ("datagen", "b")}
    assert made.cut == ()


def test_upstream_tables_come_first_however_they_are_named(tmp_path: Path) -> None:
    scripts = {"a": table("a.a") + table("m.m") + table("z.z")}
    scripts["b"] = job("x", "a.a", "m.m")
    scripts["c"] = job("y", "m.m", "z.z")
    assert list(graph(tmp_path, scripts).tables) == ["z.z", "m.m", "a.a"]


def test_the_key_prefix_stands_before_tables_only(tmp_path: Path) -> None:
    scripts = {"s": table("ods.a") + source("a") + job("j", "ods.a", "a")}
    made = graph(tmp_path, scripts, key_prefix=("prod", "lake"))
    assert made.key("ods.a") == key("prod/lake/ods/a")
    assert deps(made.tables["ods.a"]) == {"datagen/a"}


def test_one_script_may_fill_several_tables_each_with_its_own_dependencies(tmp_path: Path) -> None:
    script = table("o.a") + table("o.b") + table("i.x") + table("i.y")
    script += "SET 'pipeline.name' = 'both';\nEXECUTE STATEMENT SET BEGIN\n"
    script += "INSERT INTO o.a SELECT * FROM i.x;\nINSERT INTO o.b SELECT * FROM i.y;\nEND;\n"
    made = graph(tmp_path, {"s": script})
    assert deps(made.tables["o.a"]) == {"i/x"}
    assert deps(made.tables["o.b"]) == {"i/y"}


def test_a_table_that_reads_itself_shows_it_and_loads(tmp_path: Path) -> None:
    made = graph(tmp_path, {"s": table("o.a") + table("i.x") + job("j", "o.a", "i.x", "o.a")})
    assert deps(made.tables["o.a"]) == {"i/x"}
    assert made.tables["o.a"].metadata["reads_itself"] is True
    assert made.cut == ()


def test_a_cycle_is_cut_in_the_same_place_every_time(tmp_path: Path) -> None:
    tables = table("o.a") + table("o.b") + table("o.c")
    jobs = {"x": job("x", "o.a", "o.c"), "y": job("y", "o.b", "o.a"), "z": job("z", "o.c", "o.b")}
    made = graph(tmp_path / "one", {"tables": tables, **jobs})
    other_way_round = dict(zip("cba", reversed(jobs.values()), strict=True))
    again = graph(tmp_path / "two", {"tables": tables, **other_way_round})
    assert made.cut == again.cut == (("o.b", "o.a"),)
    assert deps(made.tables["o.b"]) == set()
    assert deps(made.tables["o.a"]) == {"o/c"}
    assert made.tables["o.b"].metadata["cyclic_dependencies_left_out"] == "o.a"
    assert list(made.tables) == ["o.b", "o.c", "o.a"]


def test_a_cycle_over_a_topic_is_cut_too(tmp_path: Path) -> None:
    to_topic = source("topic", "back") + table("o.a") + job("out", "topic", "o.a")
    from_topic = source("topic", "back") + table("o.a") + job("in", "o.a", "topic")
    made = graph(tmp_path, {"out": to_topic, "in": from_topic})
    assert len(made.cut) == 1
    assert {"o.a", "kafka/back"} == set(made.cut[0])


def test_what_a_job_writes_outside_the_lake_depends_on_what_it_reads(tmp_path: Path) -> None:
    script = source("topic", "alerts") + source("events") + table("o.a")
    made = graph(tmp_path, {"s": script + job("alert", "topic", "o.a", "events")})
    alerts = made.outside["kafka", "alerts"]
    assert deps(alerts) == {"o/a", "datagen/events"}
    assert alerts.group_name == "outside"
    assert made.outside["datagen", "events"].group_name == "sources"


def test_two_jobs_may_fill_one_table(tmp_path: Path) -> None:
    scripts = {
        "t": table("o.wide") + table("i.x") + table("i.y"),
        "x": job("from_x", "o.wide", "i.x"),
        "y": job("from_y", "o.wide", "i.y"),
    }
    lake = load(tmp_path, scripts)
    spec = lake.graph.tables["o.wide"]
    assert deps(spec) == {"i/x", "i/y"}
    assert spec.metadata["streaming_job"] == "from_x, from_y"
    assert spec.description == "Written by the streaming jobs `from_x`, `from_y`."
    defs = lake.definitions()
    executable = [a for a in defs.assets or () if isinstance(a, dg.AssetsDefinition)]
    assert [a.keys for a in executable] == [{key("o/wide")}]
    checks = defs.resolve_asset_graph().asset_check_keys
    assert {check.name for check in checks} == {
        "job_health__from_x",
        "job_health__from_y",
        "foreign_commits",
    }


def test_a_source_named_like_a_table_gets_a_key_of_its_own(tmp_path: Path) -> None:
    script = table("kafka.orders") + source("orders", "orders") + job("j", "kafka.orders", "orders")
    made = graph(tmp_path, {"s": script})
    assert made.outside["kafka", "orders"].key == key("outside/kafka/orders")
    assert deps(made.tables["kafka.orders"]) == {"outside/kafka/orders"}


def test_a_table_made_by_a_query_depends_on_what_it_reads(tmp_path: Path) -> None:
    script = table("i.x") + source("s") + "CREATE TABLE o.made AS SELECT x.id FROM i.x x, s;\n"
    spec = graph(tmp_path, {"s": script}).tables["o.made"]
    assert deps(spec) == {"i/x", "datagen/s"}
    assert spec.kinds == {"paimon"}  # no job of the project writes it
    assert spec.metadata["filled_once_by"] == "CREATE TABLE AS"
    lineage = spec.metadata["dagster/column_lineage"].deps_by_column
    assert [(d.asset_key, d.column_name) for d in lineage["id"]] == [(key("i/x"), "id")]


def test_a_table_that_no_script_declares_is_shown_all_the_same(tmp_path: Path) -> None:
    made = graph(tmp_path, {"s": table("o.a") + job("j", "o.a", "elsewhere.x")})
    assert deps(made.tables["o.a"]) == {"elsewhere/x"}
    assert "dagster/column_schema" not in made.tables["elsewhere.x"].metadata


def test_metadata_tells_name_columns_keys_and_job(tmp_path: Path) -> None:
    script = """
    CREATE TABLE app.day (
      dt STRING COMMENT 'day',
      id BIGINT,
      amount DECIMAL(10, 2),
      note STRING NOT NULL,
      PRIMARY KEY (dt, id) NOT ENFORCED
    ) COMMENT 'Per day' PARTITIONED BY (dt) WITH ('bucket' = '2');
    """
    made = graph(tmp_path, {"s": script + table("i.x") + job("fill", "app.day", "i.x")})
    spec = made.tables["app.day"]
    metadata = spec.metadata
    assert spec.description == "Per day\n\nWritten by the streaming job `fill`."
    assert spec.kinds == {"paimon", "flink"}
    assert made.tables["i.x"].kinds == {"paimon"}
    assert spec.group_name == "app"
    assert metadata["dagster/table_name"] == "lake.app.day"
    assert metadata["primary_key"] == "dt, id"
    assert metadata["partition_keys"] == "dt"
    assert metadata["streaming_job"] == "fill"
    assert metadata["options"].data == {"bucket": "2"}
    columns = metadata["dagster/column_schema"].columns
    assert [(c.name, c.type, c.description, c.constraints.nullable) for c in columns] == [
        ("dt", "STRING", "day", False),
        ("id", "BIGINT", None, False),
        ("amount", "DECIMAL(10, 2)", None, True),
        ("note", "STRING", None, False),
    ]


def test_code_references_lead_to_the_lines_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    script = "-- one\n\n" + table("o.a") + source("x") + "\n\n" + job("j", "o.a", "x")
    spec = graph(tmp_path / "project", {"sub/orders": script}).tables["o.a"]
    lines = (tmp_path / "project" / "sql" / "sub" / "orders.sql").read_text().splitlines()
    found = {
        reference.label: (reference.file_path, lines[reference.line_number - 1])
        for reference in spec.metadata["dagster/code_references"].code_references
    }
    path = str((tmp_path / "project" / "sql" / "sub" / "orders.sql").resolve())
    assert found["CREATE TABLE"] == (path, table("o.a").strip())
    assert found["INSERT of j"] == (path, "INSERT INTO o.a SELECT id, v FROM x;")


SECRETS = {
    "'s3.secret-key' = 'hush'": "s3.secret-key",
    "'fs.oss.accessKeySecret' = 'hush'": "fs.oss.accessKeySecret",
    "'password' = 'hush'": "password",
    "'properties.sasl.jaas.config' = 'password=hush'": "properties.sasl.jaas.config",
    "'url' = 'jdbc:mysql://ann:hush@db/shop'": "url",
}


@pytest.mark.parametrize(("written", "name"), SECRETS.items())
def test_secrets_in_options_are_masked(tmp_path: Path, written: str, name: str) -> None:
    script = table("o.a", options=f"'bucket' = '1', {written}")
    script += f"CREATE TEMPORARY TABLE x (id BIGINT, v STRING) WITH ('connector'='jdbc',{written});"
    lake = load(tmp_path, {"s": script + job("j", "o.a", "x")})
    (outside,) = lake.graph.outside.values()
    for spec in (lake.graph.tables["o.a"], outside):
        shown = spec.metadata["options"].data
        assert "****" in shown[name]
        assert "hush" not in repr(spec.metadata)
    assert lake.graph.tables["o.a"].metadata["options"].data["bucket"] == "1"


def test_a_connector_that_is_no_tag_still_loads(tmp_path: Path) -> None:
    script = "CREATE TEMPORARY TABLE x (id BIGINT, v STRING) WITH ('connector' = '${KIND} ü/1');\n"
    made = graph(tmp_path, {"s": script + table("o.a") + job("j", "o.a", "x")})
    (outside,) = made.outside.values()
    assert len(outside.kinds) == 1


def test_an_insert_that_cannot_be_read_wholly_says_so_and_loads(tmp_path: Path) -> None:
    script = table("o.a") + "INSERT INTO o.a SELECT id, v FROM nowhere_declared;\n"
    lake = load(tmp_path, {"s": script + "SET 'x'='y';\n"})
    dg.Definitions.validate_loadable(lake.definitions())
    unreadable = table("o.b") + "INSERT INTO o.b FROBNICATE everything ON (;\n"
    made = graph(tmp_path / "two", {"u": unreadable})
    assert made.tables["o.b"].metadata["dependencies"].startswith("not all known")


HOSTILE = [
    *("class", "a-b", "a.b", "a_b", "a__b", "a._b", "a_.b", "健康", "x y", "1"),
    *("x", "health.x", "x.health", "config", "名 前"),
]


def test_jobs_databases_and_tables_of_any_name_load_together(tmp_path: Path) -> None:
    scripts = {}
    for number, name in enumerate(HOSTILE):
        safe = name.replace(".", "-")
        sinks = [f"`{safe}`.`{safe}`", f"everything.`{safe}`"]
        script = "".join(table(sink) for sink in sinks) + source(f"x{number}")
        script += f"SET 'pipeline.name' = '{name}';\nEXECUTE STATEMENT SET BEGIN\n"
        script += "".join(f"INSERT INTO {sink} SELECT id, v FROM x{number};\n" for sink in sinks)
        scripts[f"s{number}"] = script + "END;\n"
    lake = load(tmp_path, scripts, name="la.ke-1")
    dg.Definitions.validate_loadable(lake.definitions())
    repository = lake.definitions().get_repository_def()
    assert set(lake.runtime.jobs) == set(HOSTILE)
    keys = [spec.key for spec in lake.graph.tables.values()]
    assert len(set(keys)) == len(keys)
    assert set(keys) <= set(repository.asset_graph.executable_asset_keys)


def test_tables_that_differ_in_a_hyphen_only_keep_keys_of_their_own(tmp_path: Path) -> None:
    script = "".join(table(name) for name in ("o.a_b", "o.`a-b`", "o.`健`", "i.x"))
    script += "SET 'pipeline.name' = 'j';\nEXECUTE STATEMENT SET BEGIN\n"
    script += "".join(f"INSERT INTO o.{t} SELECT * FROM i.x;\n" for t in ("a_b", "`a-b`", "`健`"))
    made = graph(tmp_path, {"s": script + "END;\n"})
    assert made.key("o.a_b") == key("o/a_b")
    assert made.key("o.a-b").path[1].startswith("a-b___")
    assert made.key("o.健").path[1].startswith("____")
    assert made.tables["o.健"].metadata["dagster/table_name"] == "lake.o.健"


@given(st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=6, unique=True))
@example(["a.b", "a__b", "a._b", "a_.b", "a_b", "a-b", "a b", ".a", "a.", "_a", "a_"])
@example(["x", "x___2d7116", "x___"])
def test_dagster_names_never_collide(names: list[str]) -> None:
    made = [dagster_name(name) for name in names]
    assert len(set(made)) == len(names)
    for name in made:
        dg.AssetSpec("x", group_name=name)


@given(st.text(alphabet="ab._-", min_size=1, max_size=7), st.text("ab._-", min_size=1, max_size=7))
def test_names_made_of_separators_never_collide(one: str, other: str) -> None:
    assert (dagster_name(one) == dagster_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("lake", "lake"), ("dwd_work_order", "dwd_work_order"), ("app.day", "app__day")],
)
def test_ordinary_names_stay_readable(name: str, expected: str) -> None:
    assert dagster_name(name) == expected
