"""``python -m benchmarks [NAME…]``: run the named benchmarks, or all; exit 0 if all goals hold."""

from __future__ import annotations

import importlib
import sys

NAMES = (
    "supervisor_tick",
    "progress_tick",
    "failover",
    "ingest",
    "demo_start",
    "definitions",
    "file_facts",
    "policies",
    "compaction_day",
)


def main(arguments: list[str]) -> int:
    unknown = [name for name in arguments if name not in NAMES]
    if unknown:
        sys.stderr.write(f"No benchmark {', '.join(unknown)}; there are: {', '.join(NAMES)}.\n")
        return 2
    holds = True
    for name in arguments or NAMES:
        for goal in importlib.import_module(f"benchmarks.{name}").run():
            sys.stdout.write(goal.line() + "\n")
            sys.stdout.flush()
            holds = holds and goal.holds
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
