"""The page about the dialect is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "dialect.md"


def test_the_example_prints_what_the_page_says() -> None:
    example, printed = re.findall(r"```(?:python)?\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    output = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=True
    ).stdout
    assert output == printed
