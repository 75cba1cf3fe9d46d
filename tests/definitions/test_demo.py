"""What ``lakehouse demo`` imports of the project, before the scripts' variables are set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

_PROGRAM = """
import os, sys
from pathlib import Path
from lakehouse_dagster.cli.demo import _story
from lakehouse_dagster.cli.project import load_project
story = _story("definitions", Path(sys.argv[1]))
os.environ.update(story.environment())
print(sorted(load_project("definitions").runtime.jobs))
"""


def test_the_demo_reads_the_scripts_once_their_variables_are_set(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "LAKE_INPUT"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            **environ,
            "LAKEHOUSE_HOME": str(tmp_path / "home"),
            "DAGSTER_HOME": str(tmp_path),
        },
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "['app_agent_day', 'app_city_hour', 'dwd_work_order', "
        "'ods_agent', 'ods_city', 'ods_work_order']\n"
    )
