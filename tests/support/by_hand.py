"""What somebody without this project does on the cluster: submit a script's SQL themselves."""

from __future__ import annotations

from uuid import uuid4

from lakehouse_dagster.flink import create_catalog, use_catalog
from lakehouse_dagster.streaming.session import fill_in
from tests.support.laboratory import Laboratory


def submit_by_hand(lab: Laboratory, *, condition: str = "", job_id: str | None = None) -> str:
    """Run the script's statements through the gateway as a person would; the Flink job's id.

    ``condition`` is added to the INSERT's SELECT, for a job that writes nothing.
    """
    runtime = lab.books
    definition = runtime.job(lab.job).definition
    job_id = job_id or uuid4().hex
    settings = {key: fill_in_text(value, lab) for key, value in definition.settings.items()}
    with runtime.cluster.sql_gateway() as gateway:
        session = gateway.open_session("by hand")
        for text in (
            create_catalog(runtime.catalog.name, runtime.catalog.flink_options()),
            use_catalog(runtime.catalog.name),
            *(fill_in(statement, runtime.environ) for statement in definition.setup),
        ):
            session.execute(text)
        config = {**settings, "$internal.pipeline.job-id": job_id}
        statement = fill_in(definition.statement, runtime.environ) + condition
        session.submit(statement, config=config).wait(60)
        session.delete()
    return job_id


def fill_in_text(value: str, lab: Laboratory) -> str:
    return value.replace("${LAB}", str(lab.folder))
