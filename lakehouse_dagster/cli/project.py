"""Finding the project's lakehouse through its Dagster module."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from lakehouse_dagster.errors import ConfigurationError, LakehouseError
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

    Raises ``ConfigurationError`` when there is no module, it cannot be imported, it holds no
    lakehouse, or several and none was named.
    """
    add_working_folder()
    names = (module,) if module else default_modules()
    found: dict[int, LoadedLakehouse] = {}
    for name in names:
        with _naming(name):
            found.update((id(lake), lake) for lake in _lakehouses(importlib.import_module(name)))
    wanted = [lake for lake in found.values() if lakehouse_name in (None, lake.lakehouse.name)]
    if len(wanted) == 1:
        _warn_of_another_database(wanted[0])
        return wanted[0]
    where = "The definitions of " + ", ".join(map(repr, names))
    there = ", ".join(sorted(lake.lakehouse.name for lake in found.values()))
    if not found:
        raise ConfigurationError(
            f"{where} have no lakehouse.",
            remedy="Let a dagster.Definitions there hold what Lakehouse.definitions() returns.",
        )
    if len(wanted) > 1 and len({lake.lakehouse.name for lake in wanted}) == 1:
        raise ConfigurationError(
            f"{where} have several lakehouses named {wanted[0].lakehouse.name!r}.",
            remedy="Name one module with -m, or give each its own Lakehouse(name=...).",
        )
    raise ConfigurationError(
        f"{where} have the lakehouses {there}"
        + ("." if lakehouse_name is None else f", none named {lakehouse_name!r}."),
        remedy="Choose one with --lakehouse.",
    )


def _warn_of_another_database(lake: LoadedLakehouse) -> None:
    """Without DAGSTER_HOME a command may look into another database than Dagster does."""
    if lake.lakehouse.system_database.url is None and not os.environ.get("DAGSTER_HOME"):
        click.echo(
            "DAGSTER_HOME is not set, so jobs are looked up in ~/.local/share/lakehouse: if your "
            "Dagster runs with a DAGSTER_HOME, set it here too.",
            err=True,
        )


@contextmanager
def _naming(module: str) -> Iterator[None]:
    """Turn what a project's own code raises into one sentence that names the place."""
    try:
        yield
    except Exception as raised:  # the code is the user's: it may raise anything
        error = _reason(raised)
        if isinstance(error, LakehouseError):
            raise error from None  # such as a setting of defs.yaml: says by itself what and where
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent is not None and f"{module}.".startswith(f"{absent}."):
            raise ConfigurationError(
                f"There is no Python module {module!r} here ({Path.cwd()}).",
                remedy="Go to the project's folder, or name the module with -m.",
            ) from raised
        raise ConfigurationError(
            f"The module {module!r} cannot be loaded: {type(error).__name__}: {error} "
            f"({_place(error)})."
        ) from raised


def _reason(raised: Exception) -> Exception:
    """What a person must know of an error: what we say of it, else what Dagster wrapped up."""
    chain = [raised]
    while (inner := _behind(chain[-1])) is not None and inner not in chain:
        chain.append(inner)
    ours = [error for error in chain if isinstance(error, LakehouseError)]
    others = [error for error in chain if not type(error).__module__.startswith("dagster")]
    return next(iter((*ours, *others)), chain[-1])


def _behind(error: Exception) -> Exception | None:
    """What an error was raised from, or while it was dealt with."""
    inner = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return inner if isinstance(inner, Exception) else None


def _place(error: Exception) -> str:
    """The innermost line of the project's own that led to the error."""
    frames = traceback.extract_tb(error.__traceback__)
    folder = str(Path.cwd()) + os.sep
    own = [f for f in frames if f.filename.startswith(folder) and "site-packages" not in f.filename]
    frame = (own or frames)[-1]
    return f"{frame.filename.removeprefix(folder)}:{frame.lineno}"


def add_working_folder() -> None:
    """Let modules of the working folder be imported, as Dagster's own commands do.

    ``dg`` takes those of a project from its folder ``src``, if there is one, installed or not.
    """
    here = Path.cwd()
    source = here / "src"
    for folder in (here, source) if _dg_project() and source.is_dir() else (here,):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def default_modules() -> tuple[str, ...]:
    """The modules that Dagster's own commands would load here, one or more.

    In the order of ``dagster._core.workspace.load_target``: ``[tool.dagster]`` ``module_name`` or
    ``modules``, then ``[tool.dg.project]``.
    """
    dagster, project = _tool().get("dagster", {}), _dg_project()
    if "module_name" in dagster:
        return (str(dagster["module_name"]),)
    if dagster.get("modules"):
        return tuple(str(module["name"]) for module in dagster["modules"])
    if "code_location_target_module" in project:
        return (str(project["code_location_target_module"]),)
    if "root_module" in project:
        return (f"{project['root_module']}.definitions",)
    file = Path.cwd() / "pyproject.toml"
    if not file.exists():
        raise ConfigurationError(
            f"There is no pyproject.toml in {file.parent}, which would name a Dagster module.",
            remedy="Go to the project's folder, or name the module with -m.",
        )
    raise ConfigurationError(
        f"No Dagster module is named in {file}.",
        remedy='Write [tool.dagster] module_name = "…" there, or name the module with -m.',
    )


def _dg_project() -> dict[str, Any]:
    """What ``[tool.dg.project]`` says, if it is a project of ``dg``."""
    return dict(_tool().get("dg", {}).get("project", {}))


def _tool() -> dict[str, Any]:
    path = Path("pyproject.toml")
    return dict(_read_toml(path).get("tool", {})) if path.exists() else {}


def _read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # Dagster depends on it where Python has no TOML reader
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
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
