"""``lakehouse demo``: local stack, data and Dagster in one command, and all down again."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from lakehouse_dagster.cli.dagster_process import DagsterProcess
from lakehouse_dagster.cli.output import print_json, reports_errors
from lakehouse_dagster.cli.project import add_working_folder, default_modules, load_project
from lakehouse_dagster.durations import in_words
from lakehouse_dagster.errors import ConfigurationError, StackError
from lakehouse_dagster.lakehouse import LoadedLakehouse
from lakehouse_dagster.local.filesystem import lakehouse_home, locked, make_folder

if TYPE_CHECKING:
    from lakehouse_dagster.local.stack import LocalStack

DEFAULT_PORT = 3000
_LOCK = "demo.lock"


class Report(Protocol):
    """What a demo's own check found."""

    @property
    def equal(self) -> bool:
        """Whether every row is as it must be."""

    def describe(self) -> str:
        """A few lines for a person."""


class Story(Protocol):
    """What the module ``<definitions>.demo`` must offer as ``Demo(folder)``."""

    def environment(self) -> Mapping[str, str]:
        """Variables that the scripts need."""

    def write_data(self, stop: threading.Event, on_round: Callable[[str], None]) -> None:
        """Write input until told to stop."""

    def check(self, lake: LoadedLakehouse, timeout_seconds: float) -> Report:
        """Compare the tables with what they must hold."""


@click.command()
@click.option("-m", "--module", help="The project's Dagster module [default: from pyproject.toml].")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything is kept; a later demo goes on there [default: LAKEHOUSE_HOME/demo].",
)
@click.option("--fresh", is_flag=True, help="Begin again: delete what an earlier demo left there.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help=f"Of Dagster [default: {DEFAULT_PORT}]."
)
@click.option("--headless", is_flag=True, help="No web page: run until all is proved, then exit.")
@click.option("--json", "as_json", is_flag=True, help="With --headless: a JSON summary at the end.")
@click.option("--timeout", type=click.FloatRange(1), default=420.0, help="Seconds; for --headless.")
@reports_errors
def demo(
    module: str | None,
    folder: Path | None,
    fresh: bool,
    port: int | None,
    headless: bool,
    as_json: bool,
    timeout: float,
) -> None:
    """Run the demo: a local Flink, its jobs, live data and Dagster; Ctrl-C takes all down."""
    name = module or default_modules()[0]
    home = (folder or lakehouse_home() / "demo").absolute()
    if not headless:
        port = _web_port(port)
    _end_on_signals()
    begun = time.monotonic()
    try:
        with _running(name, home, fresh, None if headless else port) as running:
            if headless:
                ok = _prove(running, begun, timeout, as_json)
            else:
                ok = _show(running, port, begun)
    except KeyboardInterrupt:
        _say("Stopped.")
        ok = not headless
    if not ok:
        sys.exit(1)


class Running:
    """A demo that is up."""

    def __init__(
        self,
        lake: LoadedLakehouse,
        story: Story,
        stack: LocalStack,
        dagster: DagsterProcess,
        writer: _Writer,
    ) -> None:
        self.lake = lake
        self.story = story
        self.stack = stack
        self.dagster = dagster
        self.writer = writer

    def must_be_alive(self) -> None:
        """Raise ``StackError`` when Dagster ended by itself, or what the writer failed with."""
        if self.dagster.ended():
            raise StackError("Dagster ended by itself.", remedy=f"Its log: {self.dagster.log}")
        if self.writer.failure is not None:
            raise StackError(f"No data is written any more: {self.writer.failure}")


class _Writer(threading.Thread):
    """Writes the story's data until told to stop; keeps what it failed with."""

    def __init__(self, story: Story) -> None:
        super().__init__(name="data", daemon=True)
        self._story = story
        self._stop_writing = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._story.write_data(self._stop_writing, lambda _: None)
        except Exception as error:  # noqa: BLE001 - told by must_be_alive, in the main thread
            self.failure = error

    def end(self) -> None:
        """Let it finish the round that it writes."""
        self._stop_writing.set()
        if self.is_alive():
            self.join(10)


@contextmanager
def _running(name: str, home: Path, fresh: bool, port: int | None) -> Iterator[Running]:
    """Bring everything up, and down again in the opposite order, whatever happens."""
    from lakehouse_dagster.local.progress import progress_to
    from lakehouse_dagster.local.stack import LocalStack

    stack = LocalStack(home / "stack", slots=8, checkpoint_interval_seconds=5)
    dagster = DagsterProcess(home)
    with ExitStack() as undo:
        undo.enter_context(_alone(home))
        if fresh:
            _delete(home, dagster, stack)
        dagster.prepare()
        undo.callback(stack.down)
        status = stack.up(progress_to(sys.stderr))
        # Set before the project is imported: its definitions read the addresses.
        os.environ.update(
            LAKE_WAREHOUSE=str(status.warehouse),
            FLINK_REST_URL=status.rest_url,
            FLINK_SQL_GATEWAY_URL=status.sql_gateway_url,
            DAGSTER_HOME=str(dagster.home),
        )
        story = _story(name, home / "data")
        os.environ.update(story.environment())
        lake = load_project(name)
        _say(f"Flink is up: {status.rest_url}")
        undo.callback(dagster.stop)
        dagster.start(name, port=port)
        writer = _Writer(story)
        undo.callback(writer.end)
        writer.start()
        undo.callback(_say, "Taking everything down.")
        undo.callback(_ignore_signals)
        yield Running(lake, story, stack, dagster, writer)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Refuse a second demo in the same folder: it would end the first one's processes."""
    make_folder(home, purpose="the demo")
    with ExitStack() as held:
        try:
            held.enter_context(
                locked(home / _LOCK, wait_seconds=0, on_wait=lambda: None, what="running the demo")
            )
        except StackError as error:
            raise StackError(
                f"A demo runs in {home} already.",
                remedy="End it first, or choose another folder with --folder.",
            ) from error
        yield


def _delete(home: Path, dagster: DagsterProcess, stack: LocalStack) -> None:
    """Delete what an earlier demo left, after ending what it left running."""
    _say(f"Deleting {home}.")
    dagster.end_leftover()
    stack.down()
    for path in home.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK:  # which we hold
            path.unlink()


def _story(name: str, folder: Path) -> Story:
    add_working_folder()
    try:
        module: Any = importlib.import_module(f"{name}.demo")
    except ModuleNotFoundError as error:
        if error.name not in (name, f"{name}.demo"):
            raise
        raise ConfigurationError(
            f"The project has no module {name}.demo, so there is no demo to run.",
            remedy="Run this in a checkout of lakehouse-dagster; for your own project use "
            "`lakehouse stack up` and `dagster dev`.",
        ) from error
    story: Story = module.Demo(folder)
    return story


def _show(running: Running, port: int | None, begun: float) -> bool:
    """Say where to look, then how the tables come along, until Ctrl-C."""
    _say(f"Dagster: http://localhost:{port}/asset-groups (give it a moment; Ctrl-C stops all)")
    seen: set[str] = set()
    while True:
        running.must_be_alive()
        for table, snapshot in _snapshots(running.lake).items():
            if snapshot is not None and table not in seen:
                seen.add(table)
                _say(f"{table} has its first snapshot after {in_words(time.monotonic() - begun)}")
        time.sleep(1)


def _prove(running: Running, begun: float, timeout: float, as_json: bool) -> bool:
    """Wait until every table has a snapshot and an event in Dagster, then check every row."""
    first: float | None = None
    tables = tuple(running.lake.graph.tables)
    events = dict.fromkeys(tables, 0)
    snapshots: dict[str, int | None] = dict.fromkeys(tables)
    while time.monotonic() - begun < timeout:
        running.must_be_alive()
        snapshots = _snapshots(running.lake)
        if first is None and any(s is not None for s in snapshots.values()):
            first = time.monotonic() - begun
            _say(f"First snapshot after {in_words(first)}.")
        if all(s is not None for s in snapshots.values()):
            events = _materializations(running.lake)
            if all(events.values()):
                break
        time.sleep(1)
    missing = [t for t in tables if snapshots[t] is None or not events[t]]
    if missing:
        _say(
            f"Too late after {in_words(timeout)}: "
            + ", ".join(
                f"{t} has no {'snapshot' if snapshots[t] is None else 'event in Dagster'}"
                for t in missing
            )
            + f". Logs: {running.dagster.log}, {running.stack.folder / 'log'}"
        )
    report = None
    if not missing:
        _say("Every table has a snapshot and an event in Dagster; comparing every row.")
        left = max(30.0, timeout - (time.monotonic() - begun))
        report = running.story.check(running.lake, left)
        _say(report.describe())
    equal = report is not None and report.equal
    if as_json:
        print_json(_summary(running.lake, first, equal, report is None))
    return equal


def _summary(
    lake: LoadedLakehouse, first: float | None, equal: bool, unchecked: bool
) -> dict[str, Any]:
    snapshots, events = _snapshots(lake), _materializations(lake)
    catalog = lake.lakehouse.catalog.open()
    return {
        "first_snapshot_seconds": None if first is None else round(first, 1),
        "tables": {
            table: {
                "snapshot": snapshot,
                "rows": 0 if snapshot is None else catalog.table(table).read().num_rows,
                "materializations": events[table],
            }
            for table, snapshot in snapshots.items()
        },
        "accuracy": "not checked" if unchecked else "equal" if equal else "unequal",
    }


def _snapshots(lake: LoadedLakehouse) -> dict[str, int | None]:
    catalog = lake.lakehouse.catalog.open()
    return {table: catalog.table(table).latest_snapshot_id() for table in lake.graph.tables}


def _materializations(lake: LoadedLakehouse) -> dict[str, int]:
    import dagster as dg

    with dg.DagsterInstance.get() as instance:
        return {
            table: len(instance.fetch_materializations(lake.graph.key(table), limit=1000).records)
            for table in lake.graph.tables
        }


def _web_port(port: int | None) -> int:
    from lakehouse_dagster.local.ports import free_ports, is_free, require_free

    if port is not None:
        require_free(port, use="Dagster")
        return port
    return DEFAULT_PORT if is_free(DEFAULT_PORT) else free_ports(1)[0]


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end_on_signals() -> None:
    """Let Ctrl-C, TERM and a closed terminal take everything down."""

    def interrupt(*_: object) -> None:
        _ignore_signals()
        raise KeyboardInterrupt

    for number in _SIGNALS:
        # A shell ignores SIGINT in the background, where it should count; nohup means SIGHUP.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def _ignore_signals() -> None:
    """Taking down is not to be broken off: half of it would be left running."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _say(text: str) -> None:
    click.echo(text, err=True)
