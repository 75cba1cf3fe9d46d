"""The system database on Postgres: stopped, crashed or paused, and back after a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import PATIENCE_SECONDS, NotRunnableError, Scene

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer


@contextmanager
def _server(scene: Scene) -> Iterator[PostgresServer]:
    """A server of the scene's own, on which its system database is."""
    try:
        from tests.support.postgres import running_postgres

        with running_postgres() as server:
            scene.lab.database = server.new_database()
            yield server
    except (ImportError, pytest.skip.Exception) as error:
        raise NotRunnableError(f"Postgres is not here: {error}") from error


def _away(scene: Scene, server: PostgresServer) -> None:
    """Stopped, crashed or deaf for a while."""
    how = scene.chance("stop", "crash", "pause")
    scene.at(how)
    getattr(server, how)()
    try:
        scene.pause(2, 9)
    finally:
        server.resume() if how == "pause" else server.start()


def _prove_here(scene: Scene) -> None:
    """While its database still is there."""
    scene.prove()
    scene.proved = True
    scene.lab.books.database.close()


@scenario(Row.DATABASE, "Postgres is away while a job starts")
def away_during_start(scene: Scene) -> None:
    with _server(scene) as server:
        scene.lab.source.write(40)
        scene.want(DesiredState.RUNNING)
        scene.supervise()
        scene.pause(0, 4)
        _away(scene, server)
        scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
        _prove_here(scene)


@scenario(Row.DATABASE, "Postgres is away as the job ends")
def away_as_it_ends(scene: Scene) -> None:
    with _server(scene) as server:
        job_id = scene.running_job()
        scene.supervise()
        with scene.live_rows():
            scene.pause(0, 1)
            with scene.lab.cluster.job_manager() as job_manager:
                job_manager.cancel(job_id)
            _away(scene, server)
        scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
        _prove_here(scene)
