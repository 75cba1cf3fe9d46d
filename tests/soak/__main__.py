"""``python -m tests.soak``: maintenance beside writers, with kills (see ``docs``)."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from tests.soak.lake import Place
from tests.soak.soak import Soak, soak_stack
from tests.support.stacks import up


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="default: %(default)s")
    parser.add_argument("--engine", default="flink-2.0", help="flink-2.0 or flink-1.20")
    parser.add_argument("--seed", type=int, default=1, help="of kills (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(".soak"), help="kept for looking")
    chosen = parser.parse_args()
    folder = chosen.folder.absolute() / chosen.engine
    shutil.rmtree(folder / "lake", ignore_errors=True)
    (folder / "lake").mkdir(parents=True)
    stack = soak_stack(str(folder / "stack"), chosen.engine)
    with up(stack):
        status = stack.status()
        place = Place(str(folder / "lake"), status.rest_url, status.sql_gateway_url)
        outcome = Soak(stack, place, chosen.minutes, chosen.seed).run()
    print(json.dumps(outcome.figures, indent=2))
    print("\n".join(outcome.violations) or "All is as it must be.")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
