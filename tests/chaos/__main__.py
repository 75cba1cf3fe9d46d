"""``python -m tests.chaos``: play seeded faults and keep the ledger (``docs/chaos.md``)."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.chaos.ledger import Ledger, summary
from tests.chaos.mutations import MUTATIONS
from tests.chaos.plan import PlannedFault, Row, plan
from tests.chaos.runner import play, run
from tests.chaos.scenario import variants
from tests.chaos.stack import stack_of
from tests.support.processes import break_product
from tests.support.stacks import up


def main() -> int:
    chosen = _arguments().parse_args()
    rows = _rows(chosen.rows)
    faults = plan(chosen.faults, chosen.seed, chosen.engine, variants(rows))
    if chosen.only:
        faults = tuple(fault for fault in faults if fault.index in chosen.only)
    if chosen.variant:
        faults = tuple(fault for fault in faults if chosen.variant in fault.variant)
    if chosen.mutations:
        return _mutate(chosen)
    if chosen.show:
        print("\n".join(map(str, faults)))
        return 0
    folder = chosen.folder.absolute() / chosen.engine
    ledger = Ledger(chosen.ledger or folder / "ledger.jsonl")
    stack = stack_of(folder / "stack", chosen.engine)
    began = time.monotonic()
    with up(stack):
        run(faults, stack, folder / "faults", ledger, chosen.parallel, again=chosen.again)
    played = {fault.key for fault in faults}
    entries = list({e.key: e for e in ledger.entries if e.key in played}.values())
    print(f"\n{summary(entries)}\n\n{time.monotonic() - began:.0f} s; ledger {ledger.path}")
    return 1 if any(entry.outcome.is_bad for entry in entries) else 0


def _mutate(chosen: argparse.Namespace) -> int:
    """Break the product in each way, play what should notice, and say whether it did."""
    folder = chosen.folder.absolute() / chosen.engine
    stack = stack_of(folder / "stack", chosen.engine)
    unnoticed = []
    with up(stack):
        for name, mutation in MUTATIONS.items():
            if chosen.variant and chosen.variant not in name:
                continue
            break_product(mutation.apply)
            faults = [
                PlannedFault(chosen.seed, chosen.engine, number, *fault)
                for number, fault in enumerate(mutation.noticed_by, start=1)
            ]
            with ThreadPoolExecutor(chosen.parallel) as pool:
                place = folder / "mutations" / name.replace(" ", "-")
                played = list(pool.map(partial(play, stack=stack, folder=place), faults))
            unnoticed += [] if any(entry.outcome.is_bad for entry in played) else [name]
            for entry in played:
                print(f"{name}: {entry.outcome.value} {entry.variant}: {entry.detail}", flush=True)
    print(f"unnoticed: {', '.join(unnoticed) or 'none'}")
    return 1 if unnoticed else 0


def _rows(names: str | None) -> tuple[Row, ...]:
    if names is None:
        return tuple(Row)
    return tuple(Row(name.strip().replace("_", " ")) for name in names.split(","))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=33, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which plan (default: %(default)s)")
    parser.add_argument("--engine", default="flink-2.0", help="flink-2.0 or flink-1.20")
    parser.add_argument("--rows", help="only these rows, with commas between")
    parser.add_argument("--variant", help="only faults whose variant holds this text")
    parser.add_argument(
        "--only", type=lambda text: {int(n) for n in text.split(",")}, help="faults by number"
    )
    parser.add_argument("--ledger", type=Path, help="default: in the folder, by engine")
    parser.add_argument("--folder", type=Path, default=Path(".chaos"), help="for logs of failures")
    parser.add_argument("--parallel", type=int, default=3, help="faults side by side")
    parser.add_argument("--again", action="store_true", help="play those again that failed")
    parser.add_argument(
        "--mutations", action="store_true", help="break the product: the laboratory must notice"
    )
    parser.add_argument("--show", action="store_true", help="print the plan and do nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
