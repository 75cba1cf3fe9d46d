"""A lakehouse from YAML is the same as from Python, and what is wrong is said in one sentence."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

import lakehouse_dagster
from lakehouse_dagster import BasicAuth, BearerAuth, FlinkCluster, Lakehouse, PaimonCatalog
from lakehouse_dagster.components import LakehouseComponent
from lakehouse_dagster.errors import ConfigurationError

SCRIPT = """
CREATE TABLE ods.orders (id BIGINT, PRIMARY KEY (id) NOT ENFORCED);
CREATE TEMPORARY TABLE events (id BIGINT) WITH ('connector' = 'datagen');
SET 'pipeline.name' = 'ods_orders';
INSERT INTO ods.orders SELECT id FROM events;
"""
CATALOG = {"warehouse": "/data/lake"}
FLINK = {"rest_url": "http://jobmanager:8081", "sql_gateway_url": "http://gateway:8083"}


@contextmanager
def loaded(
    script: str = SCRIPT, **attributes: Any
) -> Iterator[tuple[LakehouseComponent, dg.Definitions]]:
    """The component and its definitions, from a ``defs.yaml`` with these attributes."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=LakehouseComponent,
            defs_yaml_contents={
                "type": "lakehouse_dagster.LakehouseComponent",
                "attributes": {
                    "catalog": CATALOG,
                    "flink": FLINK,
                    "scripts": "sql/**/*.sql",
                    **attributes,
                },
            },
        )
        (path / "sql" / "demo_tick.sql").unlink()
        (path / "sql" / "ods").mkdir()
        (path / "sql" / "ods" / "orders.sql").write_text(script)
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, LakehouseComponent)
            yield component, defs


def component(**attributes: Any) -> LakehouseComponent:
    with loaded(**attributes) as (made, _):
        return made


def refused(**attributes: Any) -> str:
    with pytest.raises(Exception) as caught:
        component(**attributes)
    causes, error = [], caught.value
    while error is not None:
        causes.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(causes)


def test_the_component_is_found_under_both_of_its_names() -> None:
    assert lakehouse_dagster.LakehouseComponent is LakehouseComponent


def test_yaml_and_python_make_the_same_lakehouse() -> None:
    made = component(
        name="prod",
        key_prefix=["lake", "prod"],
        materialize_timeout="3m",
        system_database={"url": "sqlite:////data/lakehouse.db"},
        supervision={"tick_interval": "5s", "max_attempts": 3},
        progress={"progress_interval": "30s"},
    )
    assert made.lakehouse() == Lakehouse(
        name="prod",
        catalog=PaimonCatalog(warehouse="/data/lake"),
        flink=FlinkCluster("http://jobmanager:8081", "http://gateway:8083"),
        key_prefix=("lake", "prod"),
        materialize_timeout="3m",
        system_database=lakehouse_dagster.SystemDatabase("sqlite:////data/lakehouse.db"),
        supervision=lakehouse_dagster.SupervisionPolicy(tick_interval="5s", max_attempts=3),
        progress=lakehouse_dagster.ProgressPolicy(progress_interval="30s"),
    )


def test_only_catalog_flink_and_scripts_must_be_given() -> None:
    made = component()
    assert made.lakehouse() == Lakehouse(
        catalog=PaimonCatalog(warehouse="/data/lake"),
        flink=FlinkCluster("http://jobmanager:8081", "http://gateway:8083"),
    )
    assert (made.start, made.sensors_running) == ("on_demand", True)


def test_scripts_are_found_relative_to_the_folder_of_the_component() -> None:
    with loaded() as (_, defs):
        graph = defs.resolve_asset_graph()
        assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {
            "ods/orders",
            "datagen/events",
        }
        spec = next(s for s in defs.resolve_all_asset_specs() if s.key.path[-1] == "orders")
        references = spec.metadata["dagster/code_references"].code_references
        insert = next(r for r in references if r.label.startswith("INSERT"))
        assert Path(insert.file_path).read_text().splitlines()[insert.line_number - 1] == (
            "INSERT INTO ods.orders SELECT id FROM events;"
        )


def test_a_string_of_digits_stays_a_string() -> None:
    made = component(
        name="20260101",
        catalog={**CATALOG, "name": "1e3", "options": {"a": "0x10", "b": "true", "c": "[1]"}},
    )
    assert made.name == "20260101"
    assert made.catalog.name == "1e3"
    assert made.catalog.options == {"a": "0x10", "b": "true", "c": "[1]"}


def test_variables_are_filled_in_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_NAME", "20260101")
    monkeypatch.setenv("LAKE_HOST", "jm")
    monkeypatch.delenv("LAKE_UNSET", raising=False)
    made = component(
        name="{{ env.LAKE_NAME }}",
        flink={
            "rest_url": "http://{{ env.LAKE_HOST }}:8081/x",
            "sql_gateway_url": "{{ env('LAKE_UNSET', 'http://gateway:8083') }}",
        },
        catalog={**CATALOG, "options": {"owner": "{{ env('LAKE_NAME') }}"}},
    )
    assert made.name == "20260101"
    assert made.flink == FlinkCluster("http://jm:8081/x", "http://gateway:8083")
    assert made.catalog.options == {"owner": "20260101"}


def test_numbers_and_booleans_may_come_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_TRIES", "7")
    monkeypatch.setenv("LAKE_ON", "false")
    monkeypatch.setenv("LAKE_SECONDS", "2.5")
    made = component(
        flink={
            **FLINK,
            "read_timeout_seconds": "{{ env.LAKE_SECONDS }}",
            "verify": "{{ env.LAKE_ON }}",
        },
        supervision={"max_attempts": "{{ env.LAKE_TRIES }}"},
        sensors_running="{{ env.LAKE_ON }}",
    )
    assert made.supervision.max_attempts == 7
    assert made.sensors_running is False
    assert (made.flink.read_timeout_seconds, made.flink.verify) == (2.5, False)


@pytest.mark.parametrize("written", ["{{ env.LAKE_UNSET }}", "x{{ env('LAKE_UNSET') }}y"])
def test_an_unset_variable_is_an_error_that_names_it(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKE_UNSET", raising=False)
    message = refused(catalog={"warehouse": written})
    assert "The environment variable LAKE_UNSET is not set." in message
    assert "defs.yaml:" in message


def test_an_unknown_name_in_a_template_is_an_error() -> None:
    assert "'vault' is undefined" in refused(name="{{ vault.secret }}")


def test_secrets_come_from_the_environment_and_are_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLINK_TOKEN", "s3cret")
    bearer = component(flink={**FLINK, "auth": {"token": "{{ env.FLINK_TOKEN }}"}})
    assert bearer.flink.auth == BearerAuth("s3cret")
    basic = component(
        flink={**FLINK, "auth": {"username": "ann", "password": '{{ env("FLINK_TOKEN") }}'}}
    )
    assert basic.flink.auth == BasicAuth("ann", "s3cret")
    assert "s3cret" not in repr(bearer)
    assert "s3cret" not in repr(basic)


@pytest.mark.parametrize(
    "auth",
    [
        {"token": "plain"},
        {"username": "ann", "password": "plain{{ env.FLINK_TOKEN }}"},
        {"username": "ann", "password": "{{ env('FLINK_TOKEN', 'plain') }}"},
    ],
)
def test_a_secret_written_into_the_file_is_refused(
    auth: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINK_TOKEN", "s3cret")
    message = refused(flink={**FLINK, "auth": auth})
    assert "is not taken from an environment variable" in message
    assert "s3cret" not in message


def test_a_secret_among_the_catalogs_options_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("S3_SECRET", "s3cret")
    options = {"s3.secret-key": "{{ env.S3_SECRET }}", "s3.endpoint": "http://a:1"}
    made = component(catalog={**CATALOG, "options": options})
    assert made.catalog.options["s3.secret-key"] == "s3cret"
    assert "s3cret" not in repr(made)
    message = refused(catalog={**CATALOG, "options": {**options, "s3.secret-key": "hush"}})
    assert "catalog.options.s3.secret-key is not taken from an environment variable" in message
    assert "hush" not in message


@pytest.mark.parametrize("auth", [{}, {"username": "ann"}, {"token": "x", "username": "ann"}])
def test_half_an_authentication_is_refused(auth: dict[str, str]) -> None:
    assert "neither a user with a password nor a token" in refused(flink={**FLINK, "auth": auth})


@pytest.mark.parametrize("name", ["cdc", "corrections"])
def test_what_is_planned_is_said_not_to_be_supported_yet(name: str) -> None:
    attributes = {"catalog": CATALOG, "flink": FLINK, "scripts": "x.sql", name: {}}
    with pytest.raises(ConfigurationError, match=f"{name} is not supported by this version"):
        LakehouseComponent.from_attributes_dict(attributes=attributes)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"flinc": {}}, "flinc"),
        ({"flink": {**FLINK, "rest_urll": "x"}}, "rest_urll"),
        ({"supervision": {"tick_intervall": "5s"}}, "tick_intervall"),
        ({"supervision": {"tick_interval": "soon"}}, "'soon', which is not a duration"),
        ({"supervision": {"max_attempts": "many"}}, "supervision.max_attempts is 'many'"),
        ({"progress": {"events_per_tick": 0}}, "attributes.progress.events_per_tick: It is 0"),
        ({"start": "now"}, "start is 'now', which is no start policy"),
        ({"sensors_running": "perhaps"}, "sensors_running is 'perhaps'"),
        ({"scripts": "nowhere/*.sql"}, "No SQL script matches 'nowhere/*.sql'"),
        ({"name": 20260101}, "name"),
        ({"catalog": {**CATALOG, "metastore": "glue"}}, "'glue'"),
        ({"flink": {**FLINK, "read_timeout_seconds": "fast"}}, "'fast', which is no number"),
    ],
)
def test_what_is_wrong_is_named(attributes: dict[str, Any], said: str) -> None:
    assert said in refused(**attributes)


def test_a_script_that_cannot_be_used_is_named_with_its_line() -> None:
    message = refused(script=SCRIPT + "\nSET 'pipeline.name' = '${X}';\n" + SCRIPT[-46:])
    assert "sql/ods/orders.sql:" in message


def test_sensors_can_be_left_off() -> None:
    with loaded(sensors_running=False) as (_, defs):
        states = {s.name: s.default_status for s in defs.sensors or ()}
    assert states == {
        "lake_supervisor": dg.DefaultSensorStatus.STOPPED,
        "lake_progress": dg.DefaultSensorStatus.STOPPED,
    }


def test_a_component_in_python_takes_the_objects_themselves(tmp_path: Path) -> None:
    made = LakehouseComponent(
        catalog=PaimonCatalog(warehouse=str(tmp_path)),
        flink=FlinkCluster("http://jobmanager:8081", "http://gateway:8083"),
        scripts=("sql",),
    )
    assert made.lakehouse().catalog == PaimonCatalog(warehouse=str(tmp_path))


def test_the_schema_describes_every_setting_of_the_policies() -> None:
    schema = LakehouseComponent.get_model_cls().model_json_schema()["properties"]
    assert schema["supervision"]["properties"]["max_attempts"] == {"type": ["integer", "string"]}
    assert schema["supervision"]["properties"]["restart_degraded"] == {
        "type": ["boolean", "string"]
    }
    assert schema["progress"]["properties"]["tick_interval"] == {"type": ["string"]}
    assert schema["progress"]["additionalProperties"] is False


def test_intervals_become_timedeltas() -> None:
    made = component(progress={"tick_interval": "1m30s"})
    assert made.progress.tick_interval == timedelta(seconds=90)


@pytest.mark.flink
def test_what_is_scaffolded_runs_on_a_real_cluster(
    tmp_path: Path, flink_stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINK_REST_URL", flink_stack.rest_url)
    monkeypatch.setenv("FLINK_SQL_GATEWAY_URL", flink_stack.sql_gateway_url)
    monkeypatch.setenv("LAKE_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    # Job ids follow from the lakehouse's name, and the cluster may be shared with other tests.
    name = f"scaffolded_{uuid.uuid4().hex[:8]}"
    cancel = {"ops": {f"{name}_cancel": {"config": {"jobs": ["demo_tick"]}}}}
    instance = dg.DagsterInstance.ephemeral()
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=LakehouseComponent)
        with (path / "defs.yaml").open("a") as defs_yaml:
            defs_yaml.write(f"  name: {name}\n")
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            tick = defs.get_assets_def(dg.AssetKey(["demo", "tick"]))
            try:
                result = dg.materialize([tick], instance=instance)
            finally:
                defs.get_job_def(f"{name}_cancel_streaming_jobs").execute_in_process(
                    run_config=cancel, instance=instance
                )
    (event,) = result.asset_materializations_for_node(tick.node_def.name)
    assert event.metadata["rows_written"].value >= 1
    rows = PaimonCatalog(warehouse=str(tmp_path / "warehouse")).open().table("demo.tick").read()
    assert sorted(rows["id"].to_pylist())[0] == 1
