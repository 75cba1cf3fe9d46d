"""A job is known again by what it carries."""

from hypothesis import given
from hypothesis import strategies as st

from lakehouse_dagster.streaming.marker import Marker, marker_parameters, read_marker
from tests.streaming.overview_server import as_flink_shows_it

names = st.text(min_size=1, max_size=30)


@given(names, names, st.integers(1, 10_000), st.text(max_size=30))
def test_a_marker_reads_back_whatever_the_names(
    identity: str, job: str, number: int, operator_name: str
) -> None:
    marker = Marker(identity, job, number, operator_name)
    assert read_marker(as_flink_shows_it(marker_parameters(marker))) == marker


def test_the_scripts_own_parameters_stay() -> None:
    text = marker_parameters(Marker("lake@1", "a", 3, "a"), "team:blue")
    shown = as_flink_shows_it(text)
    assert shown["team"] == "blue"
    assert read_marker(shown) == Marker("lake@1", "a", 3, "a")


def test_a_job_without_marker_or_with_half_of_one_is_not_ours() -> None:
    assert read_marker({}) is None
    assert read_marker({"lakehouse.identity": "x", "lakehouse.job": "y"}) is None
    assert (
        read_marker(
            {"lakehouse.identity": "x", "lakehouse.job": "y", "lakehouse.incarnation": "one"}
        )
        is None
    )
