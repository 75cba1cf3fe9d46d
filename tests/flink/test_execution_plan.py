"""What a job consists of, and the ids under which Flink keeps its state, known beforehand."""

from __future__ import annotations

import json

import pytest

from lakehouse_dagster.errors import SqlExecutionError
from lakehouse_dagster.flink.execution_plan import (
    ExecutionPlan,
    plan_from_explain,
    worked_out,
)
from lakehouse_dagster.flink.operator_ids import murmur3_128, operator_id
from lakehouse_dagster.flink.running_plan import plan_of_running
from tests.flink.recorded_plans import CONFIG, NAMES, explained, recorded


@pytest.mark.parametrize("name", NAMES)
def test_the_ids_of_a_plan_are_those_that_the_jobs_checkpoints_hold(name: str) -> None:
    plan = recorded(name).plan()
    assert {node.operator_id for node in plan.nodes} == recorded(name).operators


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_of_a_running_job_names_the_first_operator_of_each_chain(name: str) -> None:
    running = plan_of_running(recorded(name).running)
    named = {node.operator_id: node for node in running.nodes if node.operator_id}
    foretold = {node.operator_id: node for node in recorded(name).plan().nodes}
    assert len(named) == len(recorded(name).running["plan"]["nodes"])
    for its_id, node in named.items():
        assert (node.kind, node.table) == (foretold[its_id].kind, foretold[its_id].table)
    assert _tables(running) == _tables(recorded(name).plan())
    assert sorted(running.sinks) == sorted(recorded(name).plan().sinks)


def _without_uids(name: str) -> tuple[ExecutionPlan, ExecutionPlan]:
    """The plan of the statement without uids, and what the cluster would tell of its job."""
    foretold = plan_from_explain(recorded(name).explain, {})
    text = json.dumps(recorded(name).running)
    for old, new in zip(recorded(name).plan().nodes, foretold.nodes, strict=True):
        text = text.replace(str(old.operator_id), str(new.operator_id))
    return foretold, plan_of_running(json.loads(text))


def _ids(plan: ExecutionPlan) -> set[str]:
    return {node.operator_id for node in plan.nodes if node.operator_id is not None}


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"self"}))
def test_all_ids_of_a_running_job_without_uids_can_be_worked_out(name: str) -> None:
    foretold, running = _without_uids(name)
    assert _ids(worked_out(running, _ids(foretold))) == _ids(foretold)


def test_ids_that_do_not_agree_with_what_is_known_are_not_made_up() -> None:
    """Which of a forked chain's operators feeds the next chain is not told; and uids differ."""
    foretold, running = _without_uids("self")
    assert worked_out(running, _ids(foretold)) == running
    running = plan_of_running(recorded("plain").running)
    assert worked_out(running, recorded("plain").operators) == running
    assert _ids(running) < recorded("plain").operators


def _tables(plan: ExecutionPlan) -> list[str]:
    return sorted(str(source.table) for source in plan.sources)


def test_a_plan_survives_being_stored_as_text() -> None:
    for name in NAMES:
        plan = recorded(name).plan()
        assert ExecutionPlan.from_json(plan.to_json()) == plan


def test_what_operators_are_is_told_without_the_planners_numbers() -> None:
    source, aggregate, calc, enforcer, convert, writer, committer, end = (
        recorded("agg").plan().nodes
    )
    assert (source.kind, source.table, str(source)) == (
        "Source",
        "lake.default.inc",
        "the source lake.default.inc",
    )
    assert aggregate.kind == "GroupAggregate"
    assert aggregate.description == (
        "GroupAggregate(groupBy=[text], select=[text, SUM(amount) AS EXPR$1])"
    )
    assert (writer.kind, writer.table, str(writer)) == ("Writer", "agg", "the writer of agg")
    stateful = [n for n in recorded("agg").plan().nodes if n.has_state]
    assert stateful == [source, aggregate, writer, committer]
    assert not any(n.has_state for n in (calc, enforcer, convert, end))


def test_operators_that_would_share_a_uid_get_none_and_the_option_is_named() -> None:
    """Flink refuses a job with two operators of one uid."""
    twice_read = recorded("twoscans").plan()
    assert twice_read.unusable_options == ("paimon.lake.ods.a.source.operator-uid.suffix",)
    assert [node.uid for node in twice_read.sources] == [None, None]
    assert "Writer_b_ods.jobx" in [node.uid for node in twice_read.nodes]
    twice_written = recorded("twosinks").plan()
    assert twice_written.unusable_options == ("paimon.lake.ods.a.sink.operator-uid.suffix",)
    assert [node.uid for node in twice_written.nodes if node.uid] == []


def test_tables_of_one_name_in_two_databases_keep_uids_of_their_own() -> None:
    plan = recorded("samename").plan()
    assert plan.unusable_options == ()
    assert [n.uid for n in plan.nodes if n.kind == "Writer"] == [
        "Writer_a_ods.jobx",
        "Writer_a_dwd.jobx",
    ]


def test_without_suffixes_every_id_follows_from_its_place() -> None:
    plan = plan_from_explain(recorded("plain").explain, {})
    assert [node.uid for node in plan.nodes] == [None] * 5
    assert plan.nodes[0].operator_id == recorded("plain").plan().nodes[0].operator_id


def test_secrets_and_row_data_in_filters_do_not_get_into_a_plan() -> None:
    text = (
        '== Physical Execution Plan ==\n{"nodes": [{"id": 1, "type": "Source: inc[1]", '
        '"contents": "[1]:Calc(where=[key = hunter22 OR password = \'letmein\'])", '
        '"parallelism": 1}]}'
    )
    plan = plan_from_explain(text, {}, secrets=["hunter22"])
    assert "hunter22" not in plan.to_json()
    assert "letmein" not in plan.to_json()


@pytest.mark.parametrize("answer", ["", "== Physical Execution Plan ==\n{", "== Plan ==\n{}"])
def test_an_answer_without_a_plan_is_an_error_that_says_so(answer: str) -> None:
    with pytest.raises(SqlExecutionError, match="no execution plan"):
        plan_from_explain(answer, CONFIG)


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", "00000000000000000000000000000000"),
        (b"hello", "cbd8a7b341bd9b025b1e906a48ae1d19"),
        (b"hello, world", "342fac623a5ebc8e4cdcbc079642414d"),
        (b"The quick brown fox jumps over the lazy dog.", "cd99481f9ee902c9695da1a38987b6e7"),
    ],
)
def test_murmur3_gives_the_published_digests(data: bytes, digest: str) -> None:
    """Digests as the reference implementation prints them: two big-endian numbers."""
    made = murmur3_128(data)
    assert (made[7::-1] + made[:7:-1]).hex() == digest


def test_an_operator_with_a_uid_has_the_id_that_the_uid_gives() -> None:
    named = {n.uid: n.operator_id for n in recorded("mixed").plan().nodes if n.uid}
    assert set(named) == {
        "Source_pk_ods.jobx",
        "Writer_a_ods.jobx",
        "Writer_b_ods.jobx",
        "Global Committer_a_ods.jobx",
        "Global Committer_b_ods.jobx",
    }
    assert all(operator_id(uid) == its_id for uid, its_id in named.items())


def test_a_plan_is_stored_as_plain_json() -> None:
    plan = explained("1 Source inc", "2 Map <-FORWARD 1")
    assert json.loads(plan.to_json())["nodes"][1]["inputs"] == [
        {"id": 1, "ship_strategy": "FORWARD"}
    ]
