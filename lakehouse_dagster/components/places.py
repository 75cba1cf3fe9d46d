"""Where in ``defs.yaml`` something is wrong: the field by its path, and its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lakehouse_dagster.errors import ConfigurationError, LakehouseError

if TYPE_CHECKING:
    import dagster as dg

T = TypeVar("T")
W = TypeVar("W")

_FILES = ("defs.yaml", "component.yaml")


class FieldError(ConfigurationError):
    """Something is wrong with one field; ``path`` leads to it from the top of the document."""

    def __init__(
        self, message: str, *, path: Sequence[str | int], remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.path = tuple(path)


def at(context: dg.ResolutionContext, *parts: str | int) -> dg.ResolutionContext:
    """The context of a field below this one."""
    for part in parts:
        context = context.at_path(part)
    return context


def field_name(context: dg.ResolutionContext) -> str:
    """The field's path, such as ``flink.auth.token``."""
    return ".".join(map(str, context.path)).removeprefix("attributes.")


@contextmanager
def field(context: dg.ResolutionContext) -> Iterator[None]:
    """Say of what is raised in the block that it is about this field, unless it says one itself."""
    with _about(context.path):
        yield


@contextmanager
def about(name: str) -> Iterator[None]:
    """The same for an attribute, where there is no context."""
    with _about(("attributes", name)):
        yield


@contextmanager
def _about(path: Sequence[str | int]) -> Iterator[None]:
    try:
        yield
    except FieldError:
        raise
    except LakehouseError as error:
        raise FieldError(error.message, path=path, remedy=error.remedy) from None


def here(
    resolve: Callable[[dg.ResolutionContext, W], T],
) -> Callable[[dg.ResolutionContext, W], T]:
    """A resolver whose errors are about its own field, unless they name one below it."""

    def resolved(context: dg.ResolutionContext, written: W) -> T:
        with field(context):
            return resolve(context, written)

    return resolved


def with_line(
    make: Callable[[], T], *, component: str, folder: Path, attributes: object = None
) -> T:
    """Call ``make``; name file, line and field of what is wrong in one sentence.

    What Dagster wraps around an error (a stack trace, and lines of the file, which may hold
    secrets) is left behind.

    Args:
        make: reads a document, or makes something of it.
        component: what the document's ``type`` ends with.
        folder: the folder of the ``defs.yaml``, or the file itself.
        attributes: what the document says, if it is known: tells one of several documents.
    """
    try:
        return make()
    except Exception as error:
        found = _field_error(error)
        if found is None:
            raise
    # Outside of the handler, so that the error has no context.
    raise _located(found, component, folder, attributes)


def _field_error(error: BaseException | None) -> FieldError | None:
    """The error about a field among an exception and what it was raised from."""
    while error is not None and not isinstance(error, FieldError):
        error = error.__cause__ or error.__context__
    return error


def _located(
    error: FieldError, component: str, folder: Path, attributes: object
) -> ConfigurationError:
    path = _yaml_file(folder)
    line = _line(path, component, attributes, error.path) if path is not None else None
    name = ".".join(map(str, error.path))
    place = "" if path is None else f"{path}:{line}: " if line else f"{path}: "
    return ConfigurationError(f"{place}{name}: {error.message}", remedy=error.remedy)


def _yaml_file(folder: Path) -> Path | None:
    if folder.is_file():
        return folder if folder.suffix in (".yaml", ".yml") else None
    return next((folder / name for name in _FILES if (folder / name).is_file()), None)


def _line(file: Path, component: str, attributes: object, path: Sequence[str | int]) -> int | None:
    """The line (1-based) of the field, or of what is nearest above it."""
    import yaml  # type: ignore[import-untyped]

    try:
        text = file.read_text(encoding="utf-8")
        documents = list(zip(yaml.compose_all(text), yaml.safe_load_all(text), strict=True))
    except (OSError, yaml.YAMLError):
        return None
    ours = [
        (node, value)
        for node, value in documents
        if isinstance(value, dict) and str(value.get("type", "")).endswith(component)
    ]
    chosen = [node for node, value in ours if value.get("attributes") == attributes]
    node = next(iter(chosen or [node for node, _ in ours]), None)
    return None if node is None else _nearest(node, path).line + 1


def _nearest(node: Any, path: Sequence[str | int]) -> Any:
    """The mark of the deepest part of the path that there is."""
    import yaml

    mark = node.start_mark
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if found is None:
                break
            mark, node = found[0].start_mark, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            if part >= len(node.value):
                break
            node = node.value[part]
            mark = node.start_mark
        else:
            break
    return mark
