"""Where in ``defs.yaml`` something is wrong: the field by its path, and its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lakehouse_dagster.errors import ConfigurationError, LakehouseError

if TYPE_CHECKING:
    import dagster as dg

T = TypeVar("T")
W = TypeVar("W")

_FILES = ("defs.yaml", "defs.yml", "component.yaml")


class FieldError(ConfigurationError):
    """Something is wrong with one field; ``path`` leads to it from the top of the document."""

    def __init__(
        self, message: str, *, path: Sequence[str | int], remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy, field=tuple(path))

    @property
    def path(self) -> tuple[str | int, ...]:
        """The field from the top of the document."""
        return self.field


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
def about(*name: str) -> Iterator[None]:
    """The same for an attribute, where there is no context."""
    with _about(("attributes", *name)):
        yield


@contextmanager
def about_what_it_names() -> Iterator[None]:
    """The same for errors that name an attribute themselves; others pass as they are."""
    try:
        yield
    except ConfigurationError as error:
        if isinstance(error, FieldError) or not error.field:
            raise
        with about():
            raise


@contextmanager
def _about(path: Sequence[str | int]) -> Iterator[None]:
    try:
        yield
    except FieldError:
        raise
    except LakehouseError as error:
        below = error.field if isinstance(error, ConfigurationError) else ()
        raise FieldError(error.message, path=(*path, *below), remedy=error.remedy) from None


_FOUND: ContextVar[list[FieldError] | None] = ContextVar("_FOUND", default=None)
"""What ``with_line`` has been told of so far."""


@contextmanager
def each(context: dg.ResolutionContext) -> Iterator[None]:
    """Like ``field``, where others beside it are looked at too before anything is raised."""
    found = _FOUND.get()
    try:
        with field(context):
            yield
    except FieldError as error:
        if found is None:
            raise
        found.append(error)


def here(
    resolve: Callable[[dg.ResolutionContext, W], T],
) -> Callable[[dg.ResolutionContext, W], T | None]:
    """A resolver whose errors are about its own field, unless they name one below it.

    It gives None where ``with_line`` is going to raise.
    """

    def resolved(context: dg.ResolutionContext, written: W) -> T | None:
        with each(context):
            return resolve(context, written)
        return None

    return resolved


def with_line(
    make: Callable[[], T], *, component: str, folder: Path, attributes: object = None
) -> T:
    """Call ``make``; name file, line and field of all that is wrong, each in one sentence.

    What Dagster wraps around an error (a stack trace, and lines of the file, which may hold
    secrets) is left behind.

    Args:
        make: reads a document, or makes something of it.
        component: what the document's ``type`` ends with.
        folder: the folder of the ``defs.yaml``, or the file itself.
        attributes: what the document says, if it is known: tells one of several documents.
    """
    found: list[FieldError] = []
    token = _FOUND.set(found)
    try:
        made = make()
    except Exception as error:
        last = _field_error(error)
        if last is None:
            raise
        found.append(last)
    finally:
        _FOUND.reset(token)
    if not found:
        return made
    # Outside of the handler, so that the error has no context.
    document = _document(folder, component, attributes)
    found.sort(key=lambda error: _line(document, error) or 0)
    first, *others = (_located(error, folder, document) for error in found)
    remedy = "".join(f"\n{other}" for other in others)
    raise ConfigurationError(first.message, remedy=f"{first.remedy or ''}{remedy}" or None)


def report(errors: Sequence[FieldError]) -> None:
    """Raise the errors, if there are any, all at once within ``with_line``."""
    if errors:
        found = _FOUND.get()
        if found is not None:
            found.extend(errors[:-1])
        raise errors[-1]


def refuse_repeated(folder: Path, component: str, attributes: object) -> None:
    """Raise ``FieldError`` where a name stands twice: YAML would silently take the last one."""
    document = _document(folder, component, attributes)
    for path, first, again in _repeated(document, ()) if document is not None else ():
        raise FieldError(
            f"{path[-1]} stands here in line {again}, and already in line {first}.",
            path=path,
            remedy="Take one of them out.",
        )


def _repeated(node: Any, path: tuple[str | int, ...]) -> Iterator[tuple[Any, int, int]]:
    import yaml  # type: ignore[import-untyped]

    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _repeated(item, (*path, number))
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.value in lines and key.value != "<<":
            yield (*path, key.value), lines[key.value], line
        lines.setdefault(str(key.value), line)
        yield from _repeated(value, (*path, str(key.value)))


def _field_error(error: BaseException | None) -> FieldError | None:
    """The error about a field among an exception and what it was raised from."""
    while error is not None and not isinstance(error, FieldError):
        error = error.__cause__ or error.__context__
    return error


def _located(error: FieldError, folder: Path, document: Any) -> ConfigurationError:
    path = _yaml_file(folder)
    line = _line(document, error)
    name = ".".join(map(str, error.path))
    place = "" if path is None else f"{path}:{line}: " if line else f"{path}: "
    return ConfigurationError(f"{place}{name}: {error.message}", remedy=error.remedy)


def _line(document: Any, error: FieldError) -> int | None:
    return None if document is None else int(_nearest(document, error.path).line) + 1


def _yaml_file(folder: Path) -> Path | None:
    if folder.is_file():
        return folder if folder.suffix in (".yaml", ".yml") else None
    return next((folder / name for name in _FILES if (folder / name).is_file()), None)


def _document(folder: Path, component: str, attributes: object) -> Any:
    """The document as nodes, which know their lines (from 0)."""
    import yaml

    file = _yaml_file(folder)
    if file is None:
        return None
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
    return next(iter(chosen or [node for node, _ in ours]), None)


def _nearest(node: Any, path: Sequence[str | int]) -> Any:
    """The mark of the deepest part of the path that there is."""
    import yaml

    mark = node.start_mark
    for part in path:
        if isinstance(node, yaml.MappingNode):
            # The last one counts, as for YAML.
            found = next(((k, v) for k, v in reversed(node.value) if k.value == str(part)), None)
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
