"""The table of engines."""

from __future__ import annotations

import re

import pytest

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.local.engines import DEFAULT_ENGINE, ENGINES, ClassPath, engine_named


def test_an_unknown_engine_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as refused:
        engine_named("flink-9")
    assert (
        str(refused.value) == "There is no engine 'flink-9'; known engines: flink-1.20, flink-2.0."
    )


def test_the_default_engine_is_flink_2_0_with_the_paimon_made_for_it() -> None:
    engine = engine_named(DEFAULT_ENGINE)
    assert (engine.flink_version, engine.paimon_version) == ("2.0.2", "2.0.0")
    assert engine.package.requirement == "apache-flink-libraries==2.0.2"
    assert engine.java_versions == (17, 21)
    assert [jar.coordinate for jar in engine.jars] == [
        "org.apache.paimon:paimon-flink-2.0:2.0.0",
        "org.apache.flink:flink-sql-gateway:2.0.0",
        "org.apache.flink:flink-shaded-hadoop-2-uber:2.8.3-10.0",
    ]


def test_the_other_engine_is_the_newest_long_term_one_with_the_paimon_made_for_it() -> None:
    engine = engine_named("flink-1.20")
    assert (engine.flink_version, engine.paimon_version) == ("1.20.5", "1.3.1")
    assert engine.package.requirement == "apache-flink-libraries==1.20.5"
    assert engine.java_versions == (17, 21)
    assert [jar.coordinate for jar in engine.jars] == [
        "org.apache.paimon:paimon-flink-1.20:1.3.1",
        "org.apache.flink:flink-sql-gateway:1.20.3",
        "org.apache.flink:flink-shaded-hadoop-2-uber:2.8.3-10.0",
    ]


def test_only_the_gateway_jar_is_kept_off_the_other_services() -> None:
    for engine in ENGINES.values():
        gateway_only = [jar.artifact for jar in engine.jars if jar.class_path is not ClassPath.ALL]
        assert gateway_only == ["flink-sql-gateway"]


def test_every_jar_is_pinned() -> None:
    for engine in ENGINES.values():
        for jar in engine.jars:
            assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256), jar.coordinate
