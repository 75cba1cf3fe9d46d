"""Dagster's webserver on a small instance, and a headless Chromium that looks at its pages."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_dagster.local.ports import free_ports

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

ROOT = Path(__file__).parent.parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1200",
)
INSTANCE = "telemetry: {enabled: false}\nnux: {enabled: false}\n"


def browser() -> tuple[str, str]:
    """The paths of a Chromium and of its driver on this machine; empty where there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    return found or "", shutil.which("chromedriver") or ""


@contextmanager
def group(
    command: list[str], log: Path, environ: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a process group of its own; all of it is ended at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and _group_lives(process):
            time.sleep(0.1)
    process.wait(5)


def _group_lives(process: subprocess.Popen[bytes]) -> bool:
    process.poll()  # so that a child that has ended does not count as a zombie of its group
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


@dataclass(frozen=True)
class Page:
    """What a page shows once its scripts have run."""

    text: str
    roles: frozenset[str]
    classes: frozenset[str]
    links: tuple[str, ...]

    def __contains__(self, words: str) -> bool:
        return words in self.text


class _Reader(HTMLParser):
    """Keeps the words of a page, its roles, classes and links; leaves scripts and styles out."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.roles: set[str] = set()
        self.classes: set[str] = set()
        self.links: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")
        for name, value in attrs:
            if name == "role" and value:
                self.roles.add(value)
            if (tag, name) == ("a", "href") and value:
                self.links.append(value)
            if name == "class" and value:
                self.classes.update(value.split())

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.words.append(data.strip())


class DagsterUi:
    """A running webserver, and a browser to look at it."""

    def __init__(self, url: str, driver: WebDriver) -> None:
        self.url = url
        self._driver = driver

    def look(self, path: str, *words: str, seconds: float = 60) -> Page:
        """Open a page and return what it shows, once it shows all the words or time is up."""
        self._driver.get(f"{self.url}{path}")
        deadline = time.monotonic() + seconds
        while True:
            reader = _Reader()
            reader.feed(self._driver.page_source)
            shown = " ".join(reader.words)
            page = Page(
                shown, frozenset(reader.roles), frozenset(reader.classes), tuple(reader.links)
            )
            if all(expected in page for expected in words) or time.monotonic() > deadline:
                return page
            time.sleep(0.3)


@contextmanager
def driven(folder: Path) -> Iterator[WebDriver]:
    """A headless Chromium with an empty profile, ended with the block."""
    from selenium import webdriver

    program, driver = browser()
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    service = webdriver.ChromeService(driver, log_output=str(folder / "driver.log"))
    chromium = webdriver.Chrome(options, service)
    try:
        yield chromium
    finally:
        chromium.quit()


@contextmanager
def served(folder: Path, home: Path, environ: dict[str, str], *, module: str) -> Iterator[str]:
    """The URL of a webserver that serves a module on the instance in ``home``."""
    (port,) = free_ports(1)
    program = str(Path(sys.executable).with_name("dagster-webserver"))
    command = [program, "-m", module, "-h", "127.0.0.1", "-p", str(port)]
    log = folder / "webserver.log"
    with group(command, log, {"DAGSTER_HOME": str(home), **environ}) as process:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while not _answers(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.3)
        yield url


@contextmanager
def webserver(
    folder: Path, home: Path, environ: dict[str, str], *, module: str = "definitions"
) -> Iterator[DagsterUi]:
    """Serve a module, by default the repository's, and look at it in a browser."""
    with served(folder, home, environ, module=module) as url, driven(folder) as driver:
        yield DagsterUi(url, driver)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/server_info", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
