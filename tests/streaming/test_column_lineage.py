"""Column lineage is on the assets, by their keys, and says how far it can be trusted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg

from lakehouse_dagster import LakehouseTableData, LakehouseTranslator
from lakehouse_dagster.sql.model import (
    Certainty,
    ColumnLineage,
    ColumnOrigin,
    Flow,
    Location,
    Project,
    TableName,
)
from lakehouse_dagster.streaming.column_lineage import COLUMNS_SHOWN, column_lineage
from lakehouse_dagster.streaming.graph import GraphOptions, build_graph
from tests.streaming.making import job, load, source, table

PLACE = Location("s.sql", 1, 1)
KEYS = {"ods.a": dg.AssetKey(["x", "a"]), "kafka/t": dg.AssetKey(["kafka", "t"])}


def of_a(column: str) -> ColumnOrigin:
    return ColumnOrigin(TableName("lake", "ods", "a"), None, column)


def of_topic(column: str) -> ColumnOrigin:
    return ColumnOrigin(None, ("kafka", "t"), column)


def flow(
    *columns: ColumnLineage, known: bool = True, filters: tuple[ColumnOrigin, ...] = ()
) -> Flow:
    return Flow(
        sink=TableName("lake", "dwd", "b"),
        external_sink=None,
        reads=(TableName("lake", "ods", "a"),),
        sources=(("kafka", "t"),),
        reads_itself=False,
        dependencies_known=True,
        location=PLACE,
        columns=columns if known else None,
        row_filters=filters,
    )


def test_columns_come_from_columns_of_assets() -> None:
    made = column_lineage(
        [
            flow(
                ColumnLineage("id", (of_a("id"),)),
                ColumnLineage("total", (of_a("price"), of_topic("tax"))),
                ColumnLineage("one", ()),
                filters=(of_a("status"), of_topic("kind")),
            )
        ],
        KEYS,
    )
    assert made["dagster/column_lineage"] == dg.TableColumnLineage(
        {
            "id": [dg.TableColumnDep(KEYS["ods.a"], "id")],
            "total": [
                dg.TableColumnDep(KEYS["ods.a"], "price"),
                dg.TableColumnDep(KEYS["kafka/t"], "tax"),
            ],
            "one": [],
        }
    )
    assert made["columns_made_from"].value.splitlines()[2:] == [
        "| `id` | `x/a.id` |",
        "| `total` | `x/a.price`, `kafka/t.tax` |",
        "| `one` | no column |",
    ]
    assert made["row_filters"] == "x/a.status, kafka/t.kind"
    assert "column_lineage_unknown" not in made


def test_several_jobs_of_one_table_are_put_together() -> None:
    made = column_lineage(
        [
            flow(ColumnLineage("id", (of_a("id"),)), ColumnLineage("a", (of_a("a"),))),
            flow(
                ColumnLineage("id", (of_topic("id"), of_a("id"))),
                ColumnLineage("b", (of_topic("b"),), Certainty.UNKNOWN),
            ),
        ],
        KEYS,
    )
    deps = made["dagster/column_lineage"].deps_by_column
    assert {name: [d.column_name for d in found] for name, found in deps.items()} == {
        "id": ["id", "id"],
        "a": ["a"],
        "b": ["b"],
    }
    assert made["column_lineage_unknown"] == "b"


def test_what_is_not_certain_is_said() -> None:
    made = column_lineage(
        [
            flow(
                ColumnLineage("m", (of_a("x"), of_a("y")), Certainty.AT_MOST),
                ColumnLineage("u", (of_a("x"),), Certainty.UNKNOWN),
                ColumnLineage("v", (), Certainty.UNKNOWN),
            )
        ],
        KEYS,
    )
    assert made["columns_made_from"].value.splitlines()[2:] == [
        "| `m` | `x/a.x`, `x/a.y` (some of these) |",
        "| `u` | `x/a.x` (and perhaps others) |",
        "| `v` | not known |",
    ]
    assert made["column_lineage_unknown"] == "u, v"


def test_nothing_is_made_up_where_columns_are_not_known() -> None:
    assert column_lineage([], KEYS) == {}
    assert column_lineage([flow(known=False)], KEYS) == {"column_lineage_unknown": "all columns"}
    both = column_lineage([flow(known=False), flow(ColumnLineage("id", (of_a("id"),)))], KEYS)
    assert both["column_lineage_unknown"] == "some columns"


def test_hostile_names_do_not_break_the_table() -> None:
    columns = [ColumnLineage("a|b`c\nd", (of_a("x|y"),))]
    made = column_lineage([flow(*columns)], KEYS)["columns_made_from"].value
    assert made.splitlines()[2:] == ["| `a/b'c d` | `x/a.x/y` |"]
    many = [ColumnLineage(f"c{n}", ()) for n in range(COLUMNS_SHOWN + 5)]
    shown = column_lineage([flow(*many)], KEYS)
    assert shown["columns_made_from"].value.splitlines()[-1] == "| and 5 more | |"
    assert len(shown["dagster/column_lineage"].deps_by_column) == COLUMNS_SHOWN + 5


class Shouting(LakehouseTranslator):
    """Other keys."""

    def get_asset_spec(self, data: LakehouseTableData) -> dg.AssetSpec:
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(key=[part.upper() for part in data.key.path])


def test_column_lineage_follows_the_translators_keys(tmp_path: Path) -> None:
    script = table("ods.a") + table("dwd.b") + source("t", "t")
    lake = load(tmp_path, {"s": script + job("j", "dwd.b", "ods.a", "t")})
    (only,) = lake.project.jobs
    known = replace(only.flows[0], columns=(ColumnLineage("id", (of_a("id"), of_topic("id"))),))
    project: Project = replace(lake.project, jobs=(replace(only, flows=(known,)),))
    graph = build_graph(project, GraphOptions(translator=Shouting()))
    lineage = graph.tables["dwd.b"].metadata["dagster/column_lineage"]
    found = {tuple(dep.asset_key.path) for dep in lineage.deps_by_column["id"]}
    assert found == {("ODS", "A"), ("KAFKA", "T")}


def test_the_scripts_own_lineage_reaches_the_asset(tmp_path: Path) -> None:
    script = table("ods.a") + table("dwd.b") + table("ods.c")
    script += "SET 'pipeline.name' = 'j';\nINSERT INTO dwd.b SELECT a.id, UPPER(c.v) FROM ods.a a"
    script += " JOIN ods.c c ON a.id = c.id WHERE a.v <> 'x';\n"
    spec = load(tmp_path, {"s": script}).graph.tables["dwd.b"]
    lineage = spec.metadata["dagster/column_lineage"].deps_by_column
    assert {
        name: [(dep.asset_key.to_user_string(), dep.column_name) for dep in deps]
        for name, deps in lineage.items()
    } == {"id": [("ods/a", "id")], "v": [("ods/c", "v")]}
    assert set(spec.metadata["row_filters"].split(", ")) == {"ods/a.id", "ods/c.id", "ods/a.v"}
