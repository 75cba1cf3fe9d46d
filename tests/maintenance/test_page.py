"""What docs/maintenance.md says of the policy is so."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from lakehouse_dagster import LakehouseComponent, OrphanSpec, PartitionExpirySpec, TagSpec
from lakehouse_dagster.maintenance.spec import Limits, TablePolicy, span
from lakehouse_dagster.sizes import size_bytes

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "maintenance.md").read_text()
TABLE = PAGE.partition("| setting | default | means |")[2].partition("\n\n")[0]
PARTS = {
    **{item.name: getattr(TablePolicy(), item.name) for item in fields(TablePolicy)},
    "orphans": OrphanSpec(),
    "partitions": PartitionExpirySpec("1d"),
    "tags": TagSpec("1d"),
    "limits": Limits(),
}


def settings() -> dict[str, str]:
    """Each setting of the page's table with its default as written, empty if none is."""
    found: dict[str, str] = {}
    for line in TABLE.splitlines()[2:]:
        names, default, _ = (cell.strip() for cell in line[1:-1].split("|"))
        first, *more = re.findall(r"`([\w.]+)`", names)
        written = default.rpartition(";")[2].split(",") if default else []
        for number, name in enumerate([first, *(f"{first.split('.')[0]}.{m}" for m in more)]):
            found[name] = written[number].strip() if number < len(written) else ""
    return found


def test_the_page_names_every_setting_with_its_default() -> None:
    said = settings()
    wanted = {
        f"{part}.{item.name}"
        for part, spec in PARTS.items()
        if part not in ("compaction", "compaction_group")
        for item in fields(spec)
        if item.name not in ("cron", "lasts")
    }
    assert {name for name in said if "." in name and name != "cron.lasts"} == wanted
    for name in sorted(wanted):
        part, _, setting = name.partition(".")
        value, written = getattr(PARTS[part], setting), said[name]
        if not written or written == "no such work":
            continue
        if isinstance(value, int | float):
            same = size_bytes(written) if re.search("[kmgt]b", written) else float(written)
            assert same == value, name
        else:
            assert span(written) == value, name


def test_the_pictures_of_the_page_are_there_and_small() -> None:
    pictures = re.findall(r"!\[[^]]+\]\((pictures/[^)]+)\)", PAGE)
    assert len(pictures) == 4
    assert all((DOCS / picture).stat().st_size < 150_000 for picture in pictures)


def test_the_examples_of_the_page_are_policies() -> None:
    import yaml

    examples = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for text in examples:
        written = yaml.safe_load(text)
        written = written.get("attributes", written)
        made = LakehouseComponent.from_attributes_dict(
            attributes={
                "catalog": {"warehouse": "/data/lake"},
                "flink": {"rest_url": "http://a:1", "sql_gateway_url": "http://a:2"},
                "scripts": "sql",
                **written,
            }
        )
        assert made.maintenance is not None
    assert made.maintenance is not None
    names: dict[str, Any] = {}
    (text,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(text, names)
    assert names["maintenance"] == made.maintenance
    assert names["maintenance"].tables == made.maintenance.tables
    assert made.maintenance.for_table("tmp.x").compaction == "off"
    assert made.maintenance.for_table("ods.events").compaction == "batch"
