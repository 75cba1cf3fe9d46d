"""Other versions of Python packages than the installed ones, in folders of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def install(folder: Path, *requirements: str) -> Path:
    """Install packages, without what they need, into a folder that comes first in a search path.

    Skips the test where no package index can be reached.
    """
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary", ":all:", "--timeout", "20", "--retries", "1"),
            *("--target", str(folder), *requirements),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        pytest.skip(f"{', '.join(requirements)} cannot be installed: {done.stderr.strip()[-300:]}")
    return folder
