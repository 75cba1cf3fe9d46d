"""How single tables are shown: from the project's settings, and from the tables' own comments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.streaming.names import is_key_part

if TYPE_CHECKING:
    from lakehouse_dagster.streaming.partitions import TablePartitions

_ANNOTATION = re.compile(
    r"[ \t]*(?<![A-Za-z0-9_.@])@(?P<what>owner|tag)\((?P<said>[^()\n]*)\)", re.ASCII
)


@dataclass(frozen=True)
class TableSettings:
    """What a project says about a table, or about all tables that a pattern names.

    Args:
        key: parts of its asset key, in place of prefix, database and table.
        group: the asset group, in place of the database.
        owners: e-mail addresses, or teams as ``team:data``.
        tags: key and value of each.
        kinds: shown beside ``paimon`` and ``flink``.
        description: in place of the table's comment.
        partitions: how its partitions are those of the asset.

    Raises:
        ConfigurationError: Dagster would not accept one of them; the message says which.
    """

    key: tuple[str, ...] | None = None
    group: str | None = None
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    kinds: tuple[str, ...] = ()
    description: str | None = None
    partitions: TablePartitions | None = None

    def __post_init__(self) -> None:
        for name in ("owners", "kinds"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.key is not None:
            object.__setattr__(self, "key", tuple(self.key))
            wrong = [part for part in self.key if not is_key_part(part)]
            if wrong or not self.key:
                raise ConfigurationError(
                    f"An asset key cannot have the part {wrong[0]!r}." if wrong else "key is empty."
                )
        for problem in (
            wrong_group(self.group),
            *map(wrong_owner, self.owners),
            *(wrong_tag(key, value) for key, value in self.tags.items()),
        ):
            if problem:
                raise ConfigurationError(problem)

    def over(self, other: TableSettings) -> TableSettings:
        """The settings of ``other`` with ours in their place; tags are put together."""
        said = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if getattr(self, item.name) not in (None, (), {})
        }
        said["tags"] = {**other.tags, **self.tags}
        return replace(other, **said)


def settings_of(settings: Mapping[str, TableSettings], name: str) -> TableSettings:
    """The settings of one table: all patterns that fit, later ones first, its own before these."""
    found = TableSettings()
    for pattern, said in settings.items():
        if pattern != name and fits(name, pattern):
            found = said.over(found)
    return settings[name].over(found) if name in settings else found


def fits(name: str, pattern: str) -> bool:
    """Whether a pattern names a table, or, if it has a ``/``, a source or an outside sink."""
    return ("/" in name) == ("/" in pattern) and fnmatchcase(name, pattern)


@dataclass(frozen=True)
class Comment:
    """A table's comment: its text, what its annotations say, and which of these cannot be used."""

    text: str | None
    settings: TableSettings
    problems: tuple[str, ...] = ()


def read_comment(comment: str | None) -> Comment:
    """Take ``@owner(team:data)`` and ``@tag(domain=sales)`` out of a comment.

    Any number of them may stand anywhere in it. What Dagster would not accept is left out, and
    said; it never stops a project from loading.
    """
    if not comment or "@" not in comment:
        return Comment(comment, TableSettings())
    owners: list[str] = []
    tags: dict[str, str] = {}
    problems: list[str] = []
    for match in _ANNOTATION.finditer(comment):
        said = match["said"].strip()
        if match["what"] == "owner":
            problem = wrong_owner(said)
            if not problem:
                owners.append(said)
        else:
            key, _, value = (part.strip() for part in said.partition("="))
            problem = wrong_tag(key, value)
            if not problem:
                tags[key] = value
        if problem:
            problems.append(f"{match[0].strip()}: {problem}")
    text = _ANNOTATION.sub("", comment).strip()
    settings = TableSettings(owners=tuple(dict.fromkeys(owners)), tags=tags)
    return Comment(text or None, settings, tuple(problems))


def wrong_group(group: str | None) -> str | None:
    """Why Dagster does not take this as a group; None if it does."""
    return None if group is None else _refusal(group=group)


def wrong_owner(owner: str) -> str | None:
    """Why Dagster does not take this as an owner; None if it does."""
    if owner == "team:":
        return "'team:' names no team."
    return _refusal(owner=owner)


def wrong_tag(key: str, value: str) -> str | None:
    """Why Dagster does not take this as a tag; None if it does."""
    return _refusal(tag=(key, value))


@lru_cache(maxsize=4096)
def _refusal(
    group: str | None = None, owner: str | None = None, tag: tuple[str, str] | None = None
) -> str | None:
    """What Dagster itself says against it: what it accepts differs from version to version."""
    import dagster as dg

    try:
        dg.AssetSpec(
            "table",
            group_name=group,
            owners=[owner] if owner is not None else None,
            tags=dict([tag]) if tag is not None else None,
        )
    except dg.DagsterInvalidDefinitionError as error:
        return str(error).replace(" for asset 'AssetKey(['table'])'", "")
    return None
