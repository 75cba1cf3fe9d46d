"""The ``lakehouse`` command."""

from __future__ import annotations

import importlib

import click

_COMMANDS = {
    "demo": "Run the demo: local stack, data, Dagster.",
    "discover": "Find tables of the catalog that are in no script.",
    "jobs": "Start, stop, restart or cancel streaming jobs.",
    "maintain": "Compact, expire and clean tables that are due.",
    "plan": "What scripts define: tables, jobs, lineage, advice.",
    "query": "Look into tables, at any version.",
    "stack": "The local Flink stack alone.",
    "status": "Jobs and tables at a glance.",
    "tables": "Give tables a compaction job, or another number of buckets.",
}


class _LazyGroup(click.Group):
    """Imports a command's module only when it is used: ``lakehouse --help`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"lakehouse_dagster.cli.{cmd_name}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lakehouse-dagster")
def main() -> None:
    """Operate Flink streaming jobs and Apache Paimon tables.

    Exit codes: 0 done, 1 refused or failed (the reason is on stderr), 2 wrong usage,
    130 ended by Ctrl-C.
    """
