"""The line of a log that tells why a service died."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.local.logs import reason_of_death, tail

STACK_TRACE = """\
2026-11-29 18:55:13,010 ERROR ClusterEntrypoint [main] - Could not start cluster entrypoint.
org.apache.flink.runtime.entrypoint.ClusterEntrypointException: Failed to initialize
\tat org.apache.flink.runtime.entrypoint.ClusterEntrypoint.startCluster(ClusterEntrypoint.java)
Caused by: org.apache.flink.util.FlinkException: Could not create the component.
\t... 2 more
Caused by: java.net.BindException: Could not start rest endpoint on any port in port range 22029
\tat org.apache.flink.runtime.rest.RestServerEndpoint.start(RestServerEndpoint.java:291)
\t... 2 more
2026-11-29 18:55:13,100 INFO  ClusterEntrypoint [main] - Terminating."""

JVM = """\
Unrecognized VM option 'NoSuch'
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit."""


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            STACK_TRACE,
            "org.apache.flink.util.FlinkException: Could not create the component.: "
            "java.net.BindException: Could not start rest endpoint on any port in port range 22029",
        ),
        (JVM, "Unrecognized VM option 'NoSuch'"),
        (
            "10:00 INFO  A - a\n10:01 ERROR B - bad\n10:02 INFO  C - c",
            "10:01 ERROR B - bad",
        ),
        ("10:00 INFO  A - a\n\n", "10:00 INFO  A - a"),
        ("", None),
    ],
)
def test_the_reason_is_the_last_cause_else_the_last_error(log: str, reason: str | None) -> None:
    assert reason_of_death(log.splitlines()) == reason


def test_only_what_was_logged_since_the_start_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("old\nolder\n")
    since = path.stat().st_size
    with path.open("a") as file:
        file.write("new\nnewer\n")
    assert tail(path, 10, since_bytes=since) == ("new", "newer")
    assert tail(path, 1) == ("newer",)
    path.write_text("rolled over\n")
    assert tail(path, 10, since_bytes=since + 100) == ("rolled over",)
    assert tail(tmp_path / "none.log", 10) == ()
