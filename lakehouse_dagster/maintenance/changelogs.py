"""Whether a table keeps changelogs for longer than its snapshots, by its own options."""

from __future__ import annotations

import re
from collections.abc import Mapping

_WRITTEN = re.compile(r"(\d+)\s*([a-z]*)")
_MILLISECONDS = {
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_DEFAULTS = {"num-retained.min": "10", "num-retained.max": "2147483647", "time-retained": "1 h"}


def kept_longer(options: Mapping[str, str]) -> str | None:
    """The option that keeps changelogs for longer than snapshots; None where they go together.

    What cannot be read counts as longer: nothing is let go on a guess. (Source: Paimon's
    ``CoreOptions.changelogLifecycleDecoupled``.)
    """
    for name, default in _DEFAULTS.items():
        written = options.get(f"changelog.{name}")
        if written is None:
            continue
        changelogs, snapshots = _size(written), _size(options.get(f"snapshot.{name}", default))
        if changelogs is None or snapshots is None or changelogs > snapshots:
            return f"changelog.{name}"
    return None


def _size(written: str) -> int | None:
    """A number, or a duration in milliseconds."""
    match = _WRITTEN.fullmatch(written.strip().lower())
    if match is None or match[2] not in _MILLISECONDS:
        return None
    return int(match[1]) * _MILLISECONDS[match[2]]
