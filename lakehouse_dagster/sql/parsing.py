"""One statement's text to sqlglot's tree, and from the tree to the names it holds."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError

from lakehouse_dagster.sql.dialect import Flink
from lakehouse_dagster.sql.model import Location, Statement, TableName
from lakehouse_dagster.sql.scanner import Token, TokenKind, scan
from lakehouse_dagster.sql.statements import shifted


class UnreadableStatementError(Exception):
    """The dialect does not know the statement's syntax; Flink may still take it."""

    def __init__(self, reason: str, location: Location) -> None:
        super().__init__(reason)
        self.reason = reason
        self.location = location


def parse(statement: Statement) -> exp.Expr:
    """Parse one statement.

    Raises:
        UnreadableStatementError: With the reason and the place; never anything else, as a script
            is text from outside and must not be able to break the reading of a project.
    """
    try:
        dialect = Flink()
        tokens = dialect.tokenize(statement.text)
        parser = dialect.parser(error_level=ErrorLevel.IMMEDIATE)
        found = [tree for tree in parser.parse(tokens, statement.text) if tree is not None]
    except ParseError as error:
        raise _unreadable(error, statement) from error
    except (SqlglotError, RecursionError, Exception) as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise UnreadableStatementError(reason, statement.location) from error
    if len(found) != 1:
        raise UnreadableStatementError("It is not one statement.", statement.location)
    return found[0]


def _unreadable(error: ParseError, statement: Statement) -> UnreadableStatementError:
    if not error.errors:
        return UnreadableStatementError(str(error).split("\n")[0], statement.location)
    first = error.errors[0]
    text = first.get("highlight") or ""
    # sqlglot gives the column of the token's last character.
    column = max((first.get("col") or 1) - len(text) + 1, 1)
    inner = Location(statement.location.path, first.get("line") or 1, column)
    reason = f"{(first.get('description') or 'Unknown syntax').rstrip('.')}, found {text!r}."
    return UnreadableStatementError(reason, shifted(statement.location, inner))


def tables_read(query: exp.Expr) -> tuple[exp.Table, ...]:
    """Return every table that a query names, in order; names of its own WITH clauses left out."""
    found: list[exp.Table] = []
    _collect_tables(query, frozenset(), found)
    return tuple(found)


def _collect_tables(node: exp.Expr, hidden: frozenset[str], found: list[exp.Table]) -> None:
    clause = next((a for a in node.args.values() if isinstance(a, exp.With)), None)
    if clause is not None:
        for named in clause.expressions:
            _collect_tables(named.this, hidden, found)
            hidden = hidden | {named.alias}
    if isinstance(node, exp.Table) and not (len(node.parts) == 1 and node.name in hidden):
        found.append(node)
    for child in node.iter_expressions():
        if child is not clause:
            _collect_tables(child, hidden, found)


def name_parts(table: exp.Table) -> tuple[str, ...]:
    """Return the one to three parts of a table's name."""
    return tuple(part.name for part in table.parts)


def qualify(parts: tuple[str, ...], catalog: str, database: str) -> TableName:
    """Complete a name as Flink does: from the current catalog and database."""
    return TableName(*((catalog, database)[: 3 - len(parts)] + parts))


def written_name_after(text: str, *words: str) -> tuple[str, ...] | None:
    """Find the name that follows keywords at the beginning of a statement, without parsing it.

    Args:
        words: Keywords of which any number may stand before the name, the first of them first.
    """
    tokens = [token for token in scan(text) if not token.is_trivia]
    position = 0
    while position < len(tokens) and tokens[position].is_word(*words):
        position += 1
    if position == 0:
        return None
    parts: list[str] = []
    while position < len(tokens) and len(parts) < 3 and _is_name(tokens[position]):
        parts.append(_name(tokens[position]))
        if position + 1 >= len(tokens) or tokens[position + 1].text != ".":
            return tuple(parts)
        position += 2
    return None


def _is_name(token: Token) -> bool:
    return token.kind in (TokenKind.WORD, TokenKind.NAME, TokenKind.VARIABLE)


def _name(token: Token) -> str:
    if token.kind is TokenKind.NAME:
        return token.text[1:-1].replace("``", "`")
    return token.text
