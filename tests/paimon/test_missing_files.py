"""A file that somebody could not find is missing only if the newest snapshot needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.errors import SnapshotNotFoundError
from lakehouse_dagster.paimon.missing_files import named_in
from tests.paimon.test_file_facts import reader, row, written

NOT_FOUND = (
    "FileNotFoundException: File '{}' not found, Possible causes: 1.snapshot expires too fast"
)


@pytest.mark.parametrize(
    ("told", "path"),
    [
        (
            NOT_FOUND.format("s3://b/w/ods.db/t/bucket-0/data-1-0.parquet"),
            "bucket-0/data-1-0.parquet",
        ),
        (
            "FileNotFoundException: /w/ods.db/t/day=a b/hour=1/bucket-2/data-1.orc (No such file)",
            "day=a b/hour=1/bucket-2/data-1.orc",
        ),
        (
            "File file:/w/ods.db/t/manifest/manifest-1-0 does not exist",
            "manifest/manifest-1-0",
        ),
        (
            "No such file or directory: s3a://b/ods.db/t/bucket-postpone/data-u-1.avro: 404",
            "bucket-postpone/data-u-1.avro",
        ),
        (NOT_FOUND.format("file:/w/ods.db/other/bucket-0/data-1.parquet"), None),
        ("FileNotFoundException: /etc/flink/keytab", None),
    ],
)
def test_exceptions_name_files_by_any_address_of_the_warehouse(told: str, path: str | None) -> None:
    assert named_in(told, "/mnt/warehouse/ods.db/t") == path


def test_a_live_file_is_missing_until_it_is_back(tmp_path: Path) -> None:
    table = written(tmp_path)
    table.append([row("a")])
    table.append([row("b")])
    (file,) = table.folder.glob("day=b/bucket-0/data-*")
    told = [NOT_FOUND.format(f"file:{file}")]
    assert reader(tmp_path).missing_file(told) is None
    content = file.read_bytes()
    file.unlink()
    assert reader(tmp_path).missing_file(told) == f"day=b/bucket-0/{file.name}"
    assert reader(tmp_path).missing_file([]) is None
    file.write_bytes(content)
    assert reader(tmp_path).missing_file(told) is None


def test_a_file_that_only_older_snapshots_need_is_not_missing(tmp_path: Path) -> None:
    table = written(tmp_path)
    table.append([row("a")])
    (file,) = table.folder.glob("day=a/bucket-0/data-*")
    table.append([row("a", 2)], overwrite={"day": "a"})
    file.unlink()
    assert reader(tmp_path).missing_file([NOT_FOUND.format(f"file:{file}")]) is None


def test_of_several_files_any_that_is_missing_counts(tmp_path: Path) -> None:
    table = written(tmp_path)
    table.append([row("a"), row("b")])
    files = [next(table.folder.glob(f"day={day}/bucket-0/data-*")) for day in "ab"]
    told = [NOT_FOUND.format(f"file:{file}") for file in files]
    files[1].unlink()
    assert reader(tmp_path).missing_file(told) == f"day=b/bucket-0/{files[1].name}"


def test_a_manifest_that_is_gone_is_named(tmp_path: Path) -> None:
    table = written(tmp_path)
    table.append([row("a")])
    table.append([row("b")])
    manifests = sorted(
        table.folder.glob("manifest/manifest-[!l]*"), key=lambda file: file.stat().st_mtime_ns
    )
    manifests[0].unlink()
    told = [NOT_FOUND.format(f"file:{manifests[0]}")]
    assert reader(tmp_path).missing_file(told) == f"manifest/{manifests[0].name}"
    # Which data files are needed cannot be told any more.
    data = next(table.folder.glob("day=b/bucket-0/data-*"))
    data.unlink()
    with pytest.raises(SnapshotNotFoundError, match=manifests[0].name):
        reader(tmp_path).missing_file([NOT_FOUND.format(f"file:{data}")])
