"""What all commands share: quick help, errors on stderr, exit codes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.projects import Project, own_process, project

__all__ = ["project"]

PROBE = """
import json, sys
from lakehouse_dagster.cli import main
try:
    main()
except SystemExit:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def test_help_is_quick_and_imports_no_dagster(tmp_path: Path) -> None:
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", PROBE, "--help"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    modules = set(json.loads(done.stderr.splitlines()[-1]))
    heavy = {"dagster", "pyarrow", "pypaimon", "sqlalchemy", "httpx", "duckdb", "rich", "sqlglot"}
    assert modules & heavy == set()
    assert min(took) < 1.5
    for name in ("demo", "discover", "jobs", "query", "stack", "status"):
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("status", "--nothing"),
        ("jobs", "begin", "x"),
        ("jobs", "start"),
        ("jobs", "stop", "orders", "--allow-empty-start"),
        ("query",),
        ("query", "SELECT 1", "--limit", "0"),
        ("query", "SELECT 1", "--format", "xml"),
        ("query", "SELECT 1", "--format", "arrow"),
        ("query", "SELECT 1", "--output", "x.arrow"),
        ("query", "SELECT 1", "--at", "orders=1"),
        ("query", "SELECT 1", "--at", "a.b.c=1"),
        ("query", "SELECT 1", "--at", "shop.orders"),
        ("query", "SELECT 1", "--at", "shop.orders=-1"),
        ("query", "SELECT 1", "--at", "shop.orders=²"),
        ("query", "SELECT 1", "--at", "shop.orders=1", "--at", "shop.orders=2"),
        ("demo", "--port", "0"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_so_on_stderr(
    project: Project, arguments: tuple[str, ...]
) -> None:
    project.module()
    said = project.run(*arguments)
    assert (said.code, said.out) == (2, "")
    assert "Error: " in said.err
    assert "Usage: " in said.err


def test_what_is_refused_is_exit_code_1_without_a_traceback(project: Project) -> None:
    project.module()
    said = own_process("jobs", "start", "nobody", "-m", "shop", folder=project.folder)
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "Error: No streaming job is named 'nobody'. Declared jobs: orders, sales.\n"
    )
    assert not (project.folder / "lakehouse.db").exists()


def test_the_program_on_the_path_is_the_same_command(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("lakehouse")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30)
    said = own_process("--version", folder=tmp_path, environ=dict(os.environ))
    assert done.returncode == said.code == 0
    assert done.stdout.split()[-1] == said.out.split()[-1] != ""
