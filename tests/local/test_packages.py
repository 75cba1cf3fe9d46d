"""Packages by the real pip, from a folder of tiny wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.errors import DownloadError, StackError
from lakehouse_dagster.local.engines import PythonPackage
from lakehouse_dagster.local.packages import (
    fetch_package,
    is_whole,
    package_folder,
)
from lakehouse_dagster.local.progress import SilentProgress
from tests.local.wheels import write_wheel

PACKAGE = PythonPackage("some-engine", "1.0")
NEEDED = ["pyflink/lib/dist.jar"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache, and pip told to look into a folder of wheels and nowhere else."""
    for name in ("packages", "incoming", "wheels"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path


def _fetch(cache: Path) -> Path:
    return fetch_package(PACKAGE, cache / "packages", cache / "incoming", NEEDED, SilentProgress())


def test_a_package_is_fetched_found_whole_and_repaired(cache: Path) -> None:
    write_wheel(cache / "wheels", PACKAGE, {NEEDED[0]: b"a jar", "pyflink/opt/more.jar": b"more"})
    assert not is_whole(PACKAGE, cache / "packages", NEEDED)
    folder = _fetch(cache)
    assert folder == package_folder(PACKAGE, cache / "packages")
    assert (folder / NEEDED[0]).read_bytes() == b"a jar"
    assert is_whole(PACKAGE, cache / "packages", NEEDED)
    assert list((cache / "incoming").iterdir()) == []

    (folder / NEEDED[0]).write_bytes(b"a j")
    assert not is_whole(PACKAGE, cache / "packages", NEEDED)
    assert _fetch(cache) == folder
    assert (folder / NEEDED[0]).read_bytes() == b"a jar"

    # Damage that keeps the size is found too; a file that was merely touched is not damaged.
    (folder / NEEDED[0]).write_bytes(b"A jar")
    assert not is_whole(PACKAGE, cache / "packages", NEEDED)
    (folder / NEEDED[0]).write_bytes(b"a jar")
    assert is_whole(PACKAGE, cache / "packages", NEEDED)


def test_a_package_without_what_it_should_hold_is_refused(cache: Path) -> None:
    write_wheel(cache / "wheels", PACKAGE, {"pyflink/other.jar": b"other"})
    with pytest.raises(DownloadError, match="is not whole"):
        _fetch(cache)


def test_an_index_that_does_not_answer_is_one_clear_sentence(
    cache: Path, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed_port}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(DownloadError) as refused:
        _fetch(cache)
    assert str(refused.value) == (
        "some-engine==1.0 could not be fetched: the Python package index does not answer. "
        "Check the network, or name a mirror in pip's configuration (PIP_INDEX_URL)."
    )


def test_a_package_that_the_index_does_not_have_keeps_pips_own_reason(cache: Path) -> None:
    with pytest.raises(DownloadError) as refused:
        _fetch(cache)
    assert str(refused.value) == (
        "some-engine==1.0 could not be fetched: "
        "ERROR: No matching distribution found for some-engine==1.0"
    )


def test_a_full_disk_is_named(cache: Path, full_disk: Path) -> None:
    write_wheel(cache / "wheels", PACKAGE, {NEEDED[0]: b"x" * 1024 * 1024})
    for name in ("packages", "incoming"):
        (full_disk / name).mkdir()
    with pytest.raises(StackError, match=r"^The disk that holds .* is full\."):
        _fetch(full_disk)
    assert not is_whole(PACKAGE, full_disk / "packages", NEEDED)


def test_without_pip_and_uv_the_error_says_what_to_install(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(DownloadError, match=r"neither pip nor uv is installed\. Install pip"):
        _fetch(cache)
