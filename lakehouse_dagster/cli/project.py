"""Finding the project's lakehouse through its Dagster module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.lakehouse import LoadedLakehouse

F = TypeVar("F", bound=Callable[..., Any])


def project_options(function: F) -> F:
    """The options by which a command finds the lakehouse."""
    function = click.option(
        "-m",
        "--module",
        help="Python module with the project's Dagster definitions "
        "[default: from [tool.dagster] or [tool.dg.project] in pyproject.toml].",
    )(function)
    return click.option(
        "--lakehouse", "lakehouse_name", help="Name of the lakehouse, if the project has several."
    )(function)


def load_project(module: str | None, lakehouse_name: str | None = None) -> LoadedLakehouse:
    """Import the project's Dagster module and return its lakehouse.

    Raises ``ConfigurationError`` when there is no module, no lakehouse in it, or several and none
    was named.
    """
    name = module or default_module()
    add_working_folder()
    try:
        imported = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise ConfigurationError(
            f"There is no Python module {name!r} here ({Path.cwd()}).",
            remedy="Go to the project's folder, or name the module with -m.",
        ) from error
    found = {lake.lakehouse.name: lake for lake in _lakehouses(imported)}
    if lakehouse_name is not None and lakehouse_name in found:
        return found[lakehouse_name]
    if lakehouse_name is None and len(found) == 1:
        return next(iter(found.values()))
    raise ConfigurationError(
        f"The definitions of {name!r} have "
        + (f"the lakehouses {', '.join(sorted(found))}." if found else "no lakehouse."),
        remedy="Choose one with --lakehouse." if found else "Add one: see the README.",
    )


def add_working_folder() -> None:
    """Let modules of the working folder be imported, as Dagster's own commands do."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)


def default_module() -> str:
    """The module that Dagster's own commands would load here."""
    path = Path("pyproject.toml")
    tool = _read_toml(path).get("tool", {}) if path.exists() else {}
    named = tool.get("dagster", {}).get("module_name")
    if named:
        return str(named)
    root = tool.get("dg", {}).get("project", {}).get("root_module")
    if root:
        return f"{root}.definitions"
    raise ConfigurationError(
        f"No Dagster module is named in {Path.cwd() / 'pyproject.toml'}.",
        remedy='Write [tool.dagster] module_name = "…" there, or name the module with -m.',
    )


def _read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # Dagster depends on it where Python has no TOML reader
    try:
        return dict(tomllib.loads(path.read_text()))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}.") from error


def _lakehouses(module: Any) -> Iterator[LoadedLakehouse]:
    import dagster as dg

    for value in vars(module).values():
        definitions = value
        if type(value).__name__ == "LazyDefinitions":  # what @dg.definitions makes of a function
            definitions = value()
        if isinstance(definitions, dg.Definitions):
            for resource in (definitions.resources or {}).values():
                if isinstance(resource, LoadedLakehouse):
                    yield resource
