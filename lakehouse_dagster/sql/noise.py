"""Text in scripts that is no SQL: shell lines, prompts, markdown, ``#`` comments, printed results.

Scripts are often copied from a terminal or a page of documentation. Such text is blanked out,
character by character, so that every place in the rest stays what it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakehouse_dagster.sql.scanner import TokenKind, scan

# At most one look at each line of an ordinary script: none of these begins a line of Flink SQL.
_SUSPICIOUS = re.compile(
    r"^[^\S\n]*(?:\$\s|\#|Flink\sSQL>|```|~~~|\+-|\|(?!\|)|\[[A-Z]+\]|[\w.-]+@[\w.-]+\S*[$\#]\s"
    r"|Empty\sset|\d+\srows?\sin|Received\sa\stotal|Job\sID:)",
    re.M | re.I | re.X,
)
_PROMPT = re.compile(r"Flink SQL>[^\S\n]?", re.I)
_CONTINUED_PROMPT = re.compile(r">(?=\s)")
_FENCE = re.compile(r"(?P<fence>```+|~~~+)[^\S\n]*(?P<language>[\w+-]*)[^\n]*")
_SQL_FENCES = {"", "sql", "flinksql", "flink-sql", "flink"}
_SHELL = re.compile(r"(?:\$\s|[\w.-]+@[\w.-]+\S*[$#]\s)[^\n]*?(?:\\\n[^\n]*?)*(?=\n|\Z)")
_LINES = (
    ("A shell command", _SHELL),
    ("A comment that begins with #", re.compile(r"#[^\n]*")),
    (
        "Printed output",
        re.compile(
            r"(?:\+-[-+]*\+|\|(?!\|)[^\n]*\||\[(?:INFO|WARN|WARNING|ERROR)\][^\n]*|Empty set"
            r"|\d+ rows? in set[^\n]*|Received a total of[^\n]*|Job ID:[^\n]*)[^\S\n]*(?=\n|\Z)",
            re.I,
        ),
    ),
)


@dataclass(frozen=True)
class Noise:
    """Text that was left out: its 0-based offset, and what it is, to begin a sentence with."""

    offset: int
    what: str


def without_noise(text: str) -> tuple[str, tuple[Noise, ...]]:
    """Return the text with all that is no SQL blanked out, and what was blanked out where."""
    if not _SUSPICIOUS.search(text):
        return text, ()
    kept: list[str] = []
    found: list[Noise] = []
    position, prompted = 0, False
    while position < len(text):
        at_line_start = position == 0 or text[position - 1] == "\n"
        for token in scan(text, position):
            is_space = token.kind is TokenKind.SPACE
            if at_line_start and not is_space:
                noise = _noise(text, token.offset, prompted)
                if noise is not None:
                    what, end = noise
                    prompted = prompted or what == _PROMPT_IS
                    kept += text[position : token.offset], _blank(text[token.offset : end])
                    found.append(Noise(token.offset, what))
                    position = end
                    break
            if token.kind is TokenKind.SEMICOLON:
                prompted = False
            at_line_start = "\n" in token.text if is_space else False
        else:
            kept.append(text[position:])
            break
    return "".join(kept), _runs(text, found)


_PROMPT_IS = "The prompt of the SQL client"


def _noise(text: str, offset: int, prompted: bool) -> tuple[str, int] | None:
    """Tell what begins at a line's first character, if it is no SQL, and where it ends."""
    prompt = _PROMPT.match(text, offset) or (prompted and _CONTINUED_PROMPT.match(text, offset))
    if prompt:
        return _PROMPT_IS, prompt.end()
    fence = _FENCE.match(text, offset)
    if fence:
        return "Markdown", _end_of_fence(text, fence)
    for what, pattern in _LINES:
        match = pattern.match(text, offset)
        if match:
            return what, max(match.end(), offset + 1)
    return None


def _end_of_fence(text: str, fence: re.Match[str]) -> int:
    """The end of a fence's own line, or of the whole block where it holds another language."""
    if fence["language"].lower() in _SQL_FENCES:
        return fence.end()
    closing = re.compile(rf"^[^\S\n]*{fence['fence']}[^\n]*", re.M).search(text, fence.end())
    return closing.end() if closing else fence.end()


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _runs(text: str, found: list[Noise]) -> tuple[Noise, ...]:
    """Keep the first of what stands in lines one after the other."""
    kept: list[Noise] = []
    line, last, counted = 0, -2, 0
    previous = ""
    for noise in found:
        line += text.count("\n", counted, noise.offset)
        counted = noise.offset
        if line - last > 1 or noise.what != previous:
            kept.append(noise)
        last, previous = line, noise.what
    return tuple(kept)
