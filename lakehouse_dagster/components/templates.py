"""YAML text as the user wrote it, with ``{{ env.X }}`` filled in.

Dagster's own resolution renders every string as a native Jinja template: ``"20260101"`` becomes a
number and an unset variable None. Here text stays text, and an unset variable is an error. Every
error is about the field that the context stands at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakehouse_dagster.components.places import FieldError, at, field_name
from lakehouse_dagster.errors import MissingVariableError

if TYPE_CHECKING:
    import dagster as dg

_ONE_VARIABLE = re.compile(
    r"""\s*\{\{\s*env(?:\.(\w+)|\(\s*(?:"([^"]+)"|'([^']+)')\s*\))\s*\}\}\s*"""
)
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def text(context: dg.ResolutionContext, written: str) -> str:
    """The text with its templates filled in; never anything but text.

    Raises ``FieldError``: an environment variable is not set (named in the message), or the
    template cannot be filled in.
    """
    if "{{" not in written and "{%" not in written:
        return written
    from jinja2 import Environment, StrictUndefined, TemplateError

    try:
        template = Environment(undefined=StrictUndefined).from_string(written)  # noqa: S701
        return template.render(**{**context.scope, "env": _Env()})
    except MissingVariableError as error:
        raise FieldError(error.message, path=context.path, remedy=error.remedy) from None
    except TemplateError as error:
        raise FieldError(
            f"{written!r} cannot be filled in: {error}.",
            path=context.path,
            remedy="Write {{ env.NAME }}, or {{ env('NAME', 'default') }}.",
        ) from None


def optional_text(context: dg.ResolutionContext, written: str | None) -> str | None:
    """The same where nothing may stand."""
    return None if written is None else text(context, written)


def texts(context: dg.ResolutionContext, written: Mapping[str, str]) -> dict[str, str]:
    """Options: the values filled in, the keys as they are."""
    return {key: text(at(context, key), value) for key, value in written.items()}


def one_or_several(
    context: dg.ResolutionContext, written: str | Sequence[str] | None
) -> tuple[str, ...]:
    """A text, or a list of texts."""
    if written is None:
        return ()
    if isinstance(written, str):
        return (text(context, written),)
    return tuple(text(at(context, number), one) for number, one in enumerate(written))


def filled(context: dg.ResolutionContext, written: Any) -> Any:
    """Any value whose texts are filled in, however deep they stand."""
    if isinstance(written, str):
        return text(context, written)
    if isinstance(written, Mapping):
        return {key: filled(at(context, key), value) for key, value in written.items()}
    if isinstance(written, list | tuple):
        return [filled(at(context, number), one) for number, one in enumerate(written)]
    return written


def secret(context: dg.ResolutionContext, written: str) -> str:
    """A secret, which only an environment variable may hold; never repeated in a message."""
    if not _ONE_VARIABLE.fullmatch(written):
        raise FieldError(
            f"{field_name(context)} is not taken from an environment variable.",
            path=context.path,
            remedy='Keep secrets out of files: write "{{ env.NAME }}".',
        )
    return text(context, written)


def without_variables(written: str) -> str:
    """The text without the environment variables that are taken as they are: what it says itself.

    The default of a variable stays, since it stands in the file.
    """
    return _ONE_VARIABLE.sub("", written)


def whole_number(context: dg.ResolutionContext, written: int | str) -> int:
    """A whole number, or a template that gives one."""
    value = text(context, written) if isinstance(written, str) else written
    try:
        return int(value)
    except ValueError:
        raise _wrong(context, value, "no whole number") from None


def number(context: dg.ResolutionContext, written: float | str) -> float:
    """A number, or a template that gives one."""
    value = text(context, written) if isinstance(written, str) else written
    try:
        return float(value)
    except ValueError:
        raise _wrong(context, value, "no number") from None


def yes_or_no(context: dg.ResolutionContext, written: bool | str) -> bool:
    """A boolean, or a template that gives one."""
    if isinstance(written, bool):
        return written
    value = text(context, written)
    if value.strip().lower() not in (*_TRUE, *_FALSE):
        raise _wrong(context, value, "neither true nor false", "Write true or false.")
    return value.strip().lower() in _TRUE


def _wrong(
    context: dg.ResolutionContext, value: object, what: str, remedy: str | None = None
) -> FieldError:
    message = f"{field_name(context)} is {value!r}, which is {what}."
    return FieldError(message, path=context.path, remedy=remedy)


class _Env:
    """``env.NAME`` and ``env("NAME", "default")`` in templates; unset is an error, never None."""

    def __getattr__(self, name: str) -> str:
        if name.startswith(("jinja", "__")):
            raise AttributeError(name)
        return self(name)

    def __call__(self, name: str, *default: Any) -> str:
        value = os.environ.get(name)
        if value is not None:
            return value
        if default:
            return str(default[0])
        raise MissingVariableError(
            f"The environment variable {name} is not set.",
            remedy=f"Set it where Dagster runs, or write {{{{ env('{name}', 'default') }}}}.",
        )
