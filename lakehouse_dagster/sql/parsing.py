"""One statement's text to sqlglot's tree, and from the tree to the names it holds."""

from __future__ import annotations

import sys

from sqlglot import TokenType, exp
from sqlglot.errors import ErrorLevel, ParseError

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect import Flink
from lakehouse_dagster.sql.model import Location, Statement, TableName
from lakehouse_dagster.sql.statements import place_in, shifted

# Room for 280 brackets within one another, which take up to 21 calls each. It is a setting of the
# process, and scripts are read in one of their own; Python 3.10 has room for it on its C stack too.
_RECURSION_LIMIT = 6000

READER_FAILED = "The reader itself failed on it; please report it"


class UnreadableStatementError(Exception):
    """The dialect does not know the statement's syntax; Flink may still take it."""

    def __init__(self, reason: str, location: Location) -> None:
        super().__init__(reason)
        self.reason = reason
        self.location = location


def parse(statement: Statement, *, written: Statement | None = None) -> exp.Expr:
    """Parse one statement.

    Args:
        statement: With its variables filled in.
        written: As the script has it; what it does not hold is never repeated in a reason.

    Raises:
        UnreadableStatementError: With the reason and the place; never anything else, as a script
            is text from outside and must not be able to break the reading of a project.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
    dialect = Flink()
    parser = dialect.parser(error_level=ErrorLevel.IMMEDIATE)
    try:
        tokens = dialect.tokenize(statement.text)
        found = [tree for tree in parser.parse(tokens, statement.text) if tree is not None]
    except ParseError as error:
        at_end = getattr(parser, "_curr", None) is not None and (
            parser._curr.token_type == TokenType.SENTINEL
        )
        raise _unreadable(error, statement, written or statement, at_end=at_end) from error
    except RecursionError as error:
        raise UnreadableStatementError("It is nested too deeply.", statement.location) from error
    except Exception as error:
        # Its text may quote the statement, and so a secret in it.
        reason = f"It cannot be taken apart ({type(error).__name__})."
        raise UnreadableStatementError(reason, statement.location) from error
    if len(found) != 1:
        raise UnreadableStatementError("It is not one statement.", statement.location)
    return found[0]


def _unreadable(
    error: ParseError, statement: Statement, written: Statement, *, at_end: bool
) -> UnreadableStatementError:
    if not error.errors:
        return UnreadableStatementError(str(error).split("\n")[0], statement.location)
    first = error.errors[0]
    said = _in_our_words(first.get("description") or "")
    if at_end:
        # sqlglot points at the last word, after which something is missing.
        end = place_in(statement, len(statement.text))
        return UnreadableStatementError(f"{said}, but the statement ends.", end)
    text = first.get("highlight") or ""
    # sqlglot gives the column of the token's last character.
    column = max((first.get("col") or 1) - len(text) + 1, 1)
    inner = Location(statement.location.path, first.get("line") or 1, column)
    text = "'…'" if "'" in text or text not in written.text else text
    return UnreadableStatementError(f"{said}, found {text}.", shifted(statement.location, inner))


def _in_our_words(description: str) -> str:
    """What sqlglot says of a mistake, without the names of its classes."""
    description = description.rstrip(".")
    if description.startswith("Expecting "):
        return f"Expected {description.removeprefix('Expecting ')}"
    if description.startswith("Expected table name"):
        return "Expected a table's name"
    if description.startswith("Invalid expression"):
        return "Something else was expected here"
    if "<" in description or not description:
        return "Expected something more"
    return description


def nodes_within(tree: exp.Expr, *without: type[exp.Expr]) -> list[exp.Expr]:
    """The nodes of a tree, level by level; those of some types left out with all below them.

    It is ``Expr.walk`` at a quarter of the time, which the largest part of reading would be.
    """
    found = [tree]
    for node in found:
        for member in node.args.values():
            if isinstance(member, list):
                found.extend(
                    [m for m in member if isinstance(m, exp.Expr) and not isinstance(m, without)]
                )
            elif isinstance(member, exp.Expr) and not isinstance(member, without):
                found.append(member)
    return found


def tables_read(query: exp.Expr) -> tuple[exp.Table, ...]:
    """Return every table that a query names, in order; names of its own WITH clauses left out."""
    found: list[exp.Table] = []
    # A stack instead of recursion: a thousand UNIONs are a tree a thousand deep.
    waiting: list[tuple[exp.Expr, frozenset[str]]] = [(query, frozenset())]
    while waiting:
        node, hidden = waiting.pop()
        following: list[tuple[exp.Expr, frozenset[str]]] = []
        clause = node.args.get("with_")
        if isinstance(clause, exp.With):
            for named in clause.expressions:
                following.append((named.this, hidden))
                hidden = hidden | {named.alias}
        if isinstance(node, nodes.TableFunction):
            found.extend(_tables_searched(node))
        if isinstance(node, exp.Table) and not (len(node.parts) == 1 and node.name in hidden):
            found.append(node)
        for member in node.args.values():
            if isinstance(member, exp.Expr) and member is not clause:
                following.append((member, hidden))
            elif isinstance(member, list):
                following.extend([(m, hidden) for m in member if isinstance(m, exp.Expr)])
        waiting.extend(reversed(following))
    return tuple(found)


def may_be_alias(table: exp.Table) -> bool:
    """Whether a function's TABLE argument has the name of another relation of the same FROM."""
    query = table.find_ancestor(exp.Select)
    if not isinstance(table.parent, nodes.TableArgument) or len(table.parts) > 1 or query is None:
        return False
    beside = [query.args.get("from_"), *(query.args.get("joins") or ())]
    return any(clause is not None and clause.this.alias == table.name for clause in beside)


def _tables_searched(function: nodes.TableFunction) -> list[exp.Table]:
    """The table that one of Confluent's search functions takes by its mere name."""
    first = function.expressions[0] if function.expressions else None
    if not function.name.upper().endswith("_SEARCH_AGG") or not isinstance(first, exp.Column):
        return []
    return [exp.Table(this=first.this, db=first.args.get("table"), catalog=first.args.get("db"))]


def query_of(insert: exp.Insert) -> exp.Expr:
    """Return the query of an INSERT, with a WITH clause that stands before the INSERT."""
    query: exp.Expr = insert.expression
    clause = insert.args.get("with_")
    return query if clause is None else exp.Subquery(this=query.copy(), with_=clause.copy())


def name_parts(table: exp.Table) -> tuple[str, ...]:
    """Return the one to three parts of a table's name."""
    return tuple(part.name for part in table.parts)


def qualify(parts: tuple[str, ...], catalog: str, database: str) -> TableName:
    """Complete a name as Flink does: from the current catalog and database."""
    return TableName(*((catalog, database)[: 3 - len(parts)] + parts))
