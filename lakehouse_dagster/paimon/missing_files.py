"""Whether a file that somebody could not find is one that a table's newest snapshot needs.

Files of earlier snapshots vanish when those expire, while somebody reads them: that is no damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lakehouse_dagster.paimon.files import WarehouseFiles
from lakehouse_dagster.paimon.manifests import both_lists, live_entries, manifests_of, records_of

_IN_TABLE = r"/((?:[^'\"\n]*?/)?(?:bucket-[^/\s'\"]+|manifest|index)/[^/\s'\",;:]*[^/\s'\",;:.])"
"""A path from the table's folder on, as the folders of "Concepts / Spec" are called."""


def named_in(text: str, table_path: str) -> str | None:
    """The file of a table that the text of an exception names; its path from the table's folder.

    Flink's machines may know the warehouse by another address: the end of the folder's path counts.
    """
    folder = "/".join(table_path.rstrip("/").rsplit("/", 2)[-2:])
    found = re.search(re.escape(folder) + _IN_TABLE, text)
    return None if found is None else found[1]


def needed_names(
    files: WarehouseFiles, table_name: str, table_path: str, document: Mapping[str, Any]
) -> Iterator[str]:
    """The names of the files that a snapshot consists of, each before it is opened.

    Arguments and errors as of ``manifests.delta_entries``.
    """
    yield from both_lists(document)
    index_manifest = document.get("indexManifest")
    if index_manifest:
        yield index_manifest
        entries = records_of(files, f"{table_path}/manifest/{index_manifest}", table_name)
        yield from (entry["_FILE_NAME"] for entry in entries)
    for manifest in manifests_of(files, table_name, table_path, both_lists(document)):
        yield manifest["_FILE_NAME"]
    for entry in live_entries(files, table_name, table_path, document):
        yield entry["_FILE"]["_FILE_NAME"]
        yield from entry["_FILE"].get("_EXTRA_FILES") or ()
