"""Where a statement begins although the semicolon before it was forgotten.

Careful on purpose: only where a line begins with words that can begin nothing else, outside of
brackets, and what stands before them could end there.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lakehouse_dagster.sql.scanner import Token, TokenKind

MAY_BE_CUT = re.compile(
    r"^[^\S\n]*(?:/\*.*?\*/\s*)*(?:CREATE|INSERT|EXECUTE|BEGIN|SET|RESET|DROP|ALTER|USE|SELECT)\b"
    r"|\bEND\b",
    re.M | re.I | re.S,
)
"""Says at little cost that there is no place in a text where a statement might begin."""
_OBJECTS = {"TABLE", "VIEW", "CATALOG", "DATABASE", "FUNCTION"}
_CREATE_FILLERS = {"OR", "REPLACE", "TEMPORARY", "SYSTEM", "MATERIALIZED"}
# What needs something after it; SHOW, EXPLAIN and the like take a whole statement as their rest.
_INCOMPLETE_WORDS = {
    "AS", "FOR", "EXPLAIN", "EXECUTE", "SHOW", "BEGIN", "FROM", "JOIN", "ON", "WHERE", "AND", "OR",
    "NOT", "SELECT", "BY", "IN", "LIKE", "WITH", "SET", "USE", "INTO", "TABLE", "CASE", "WHEN",
    "THEN", "ELSE", "UNION", "ALL", "EXCEPT", "INTERSECT", "HAVING", "IS", "BETWEEN", "PLAN",
    "ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE", "VALUES", "IF",
    "EXISTS", "COMMENT", "SOURCE", "DISTINCT",
}  # fmt: skip
_INCOMPLETE_SIGNS = set("=,(.<>+-*/|&:[{")
_TAKES_SET = {"UPDATE", "MERGE", "ALTER"}
_SINGLE_LINE = {"SET", "RESET", "USE", "SOURCE"}
_FIRST_WORDS = """
ADD ALTER ANALYZE BEGIN CALL CLEAR COMPILE CREATE DELETE DESC DESCRIBE DROP END EXECUTE
EXIT EXPLAIN HELP INSERT LIST LOAD MERGE QUIT REMOVE REPLACE RESET SELECT SET SHOW SOURCE
STOP TABLE TRUNCATE UNLOAD UPDATE USE VALUES WITH
"""
KNOWN_FIRST_WORDS = frozenset(_FIRST_WORDS.split())


def cuts(tokens: list[Token]) -> list[int]:
    """Return the positions among the tokens of a piece of text at which a new statement begins.

    Args:
        tokens: All tokens up to one semicolon, white space and comments among them.
    """
    found: list[int] = []
    first: Token | None = None
    before: Token | None = None
    depth, cases, line_start, has_as = 0, 0, True, False
    for position, token in enumerate(tokens):
        if token.is_trivia:
            line_start = line_start or "\n" in token.text
            continue
        is_word = token.kind is TokenKind.WORD
        if is_word and token.text.upper() in ("CASE", "END"):
            cases += 1 if token.text.upper() == "CASE" else -1
        if (
            depth == 0
            and first is not None
            and before is not None
            and is_word
            and (cases < 0 or line_start)
            and (cases < 0 or _begins(_following(tokens, position), first, before, has_as))
        ):
            # An END without a CASE is that of a statement set.
            found.append(position)
            first, has_as, cases = None, False, 0
        first = first or token
        if token.kind is TokenKind.OTHER:
            depth = max(depth + {"(": 1, ")": -1}.get(token.text, 0), 0)
        elif depth == 0 and token.is_word("AS"):
            has_as = True
        before, line_start = token, False
    return found


def _following(tokens: list[Token], position: int) -> Callable[[int], Token | None]:
    """The significant tokens from a position on, looked up only as far as they are asked for."""

    def token(number: int) -> Token | None:
        at = position
        while at < len(tokens):
            if not tokens[at].is_trivia:
                if number == 0:
                    return tokens[at]
                number -= 1
            at += 1
        return None

    return token


def _begins(
    following: Callable[[int], Token | None], first: Token, before: Token, has_as: bool
) -> bool:
    after_text = first.kind is not TokenKind.WORD or first.text.upper() not in KNOWN_FIRST_WORDS
    if not after_text and not _is_complete(before):
        return False
    word = (following(0) or first).text.upper()
    if word == "SELECT":
        after_table = first.is_word("CREATE") and before.text == ")" and not has_as
        return after_table or first.is_word(*_SINGLE_LINE)
    return _is_strong(word, following, first)


def _is_complete(token: Token) -> bool:
    if token.kind is TokenKind.WORD:
        return token.text.upper() not in _INCOMPLETE_WORDS
    return token.kind is not TokenKind.OTHER or token.text not in _INCOMPLETE_SIGNS


def _is_strong(word: str, following: Callable[[int], Token | None], first: Token) -> bool:
    """Whether the words can begin a statement, and nothing within one."""
    second, third = following(1), following(2)
    if second is None:
        return False
    if word == "CREATE":
        number = 1
        while (token := following(number)) is not None and token.is_word(*_CREATE_FILLERS):
            number += 1
        return token is not None and token.is_word(*_OBJECTS)
    if word == "INSERT":
        return second.is_word("INTO", "OVERWRITE") and not first.is_word("EXPLAIN", "COMPILE")
    if word in ("EXECUTE", "BEGIN"):
        return (
            second.is_word("STATEMENT")
            and third is not None
            and third.is_word("SET")
            and not first.is_word("EXPLAIN", "COMPILE")
        )
    if word == "SET":
        return not first.is_word(*_TAKES_SET) and _is_option(following)
    if word == "RESET":
        return second.kind is TokenKind.STRING
    if word == "DROP":
        return not first.is_word("ALTER") and second.is_word(*_OBJECTS, "TEMPORARY")
    if word == "ALTER":
        return second.is_word(*_OBJECTS)
    if word == "USE":
        return second.is_word("CATALOG") or first.is_word(*_SINGLE_LINE, "CREATE")
    return False


def _is_option(following: Callable[[int], Token | None]) -> bool:
    """Whether ``'key' =`` or ``a.b-c =`` comes after the first word."""
    for number in range(1, 40):
        token = following(number)
        if token is None:
            return False
        if token.text == "=":
            return number > 1
        is_part = token.kind in (TokenKind.WORD, TokenKind.STRING) or token.text in ".-"
        if not is_part:
            return False
    return False
