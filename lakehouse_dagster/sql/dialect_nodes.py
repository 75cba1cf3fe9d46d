# ruff: noqa: RUF012
"""Syntax tree nodes for what Flink SQL has and sqlglot's own tree lacks."""

from __future__ import annotations

from sqlglot import TokenType, exp

SEPARATOR_IN_SET = TokenType.BREAK
"""What a semicolon inside a statement set becomes, as sqlglot cuts its input at semicolons."""


class SetOption(exp.Expression):
    """``SET 'key' = 'value'``; both are text, never expressions (``SET x = 3s``)."""

    arg_types = {"this": False, "value": False}


class ResetOption(exp.Expression):
    """``RESET`` or ``RESET 'key'``."""

    arg_types = {"this": False}


class DropObject(exp.Expression):
    """``DROP [TEMPORARY] kind [IF EXISTS] name``; ``exp.Drop`` differs between versions."""

    arg_types = {
        "this": True,
        "kind": True,
        "temporary": False,
        "exists": False,
        "cascade": False,
        "restrict": False,
    }


class StatementSet(exp.Expression):
    """``EXECUTE STATEMENT SET BEGIN …; END``, in either of its two forms."""

    arg_types = {"expressions": True}


class AlterObject(exp.Expression):
    """``ALTER kind name action``; ``action`` is one ``AlterAction``."""

    arg_types = {
        "this": True,
        "kind": True,
        "temporary": False,
        "exists": False,
        "action": True,
    }


class AlterAction(exp.Expression):
    """What ALTER does.

    By ``kind``: ``ADD`` and ``MODIFY`` have table elements in ``expressions`` (as CREATE TABLE has
    them; the place of a column is its ``position``), ``DROP`` columns, ``ADD`` and ``DROP`` also
    ``exp.Partition`` nodes; ``SET`` has options, ``RESET`` keys; ``RENAME TO`` has the new name in
    ``this``, ``RENAME`` a column in ``this`` and its new name in ``value``; ``AS`` has a query or a
    class; the rest speaks for itself.
    """

    arg_types = {
        "kind": True,
        "this": False,
        "value": False,
        "expressions": False,
        "exists": False,
        "wrapped": False,
    }


class Explain(exp.Expression):
    """``EXPLAIN [details] statement``; ``this`` is the statement, ``expressions`` the details."""

    arg_types = {"this": True, "expressions": False}


class CompilePlan(exp.Expression):
    """``COMPILE [AND EXECUTE] PLAN 'path' [IF NOT EXISTS] FOR statement``."""

    arg_types = {"this": True, "path": True, "exists": False, "executed": False}


class ExecutePlan(exp.Expression):
    """``EXECUTE PLAN 'path'``."""

    arg_types = {"this": True}


class CallProcedure(exp.Expression):
    """``CALL sys.compact(…)``: the name as a word, not a table, and the arguments."""

    arg_types = {"this": True, "expressions": False}


class LoadModule(exp.Expression):
    """``LOAD MODULE name WITH (…)`` or ``UNLOAD MODULE name`` (``kind``)."""

    arg_types = {"this": True, "kind": True, "expressions": False}


class AddJar(exp.Expression):
    """``ADD JAR 'path'`` or ``REMOVE JAR 'path'`` (``kind``)."""

    arg_types = {"this": True, "kind": True}


class ReplaceOnlyProperty(exp.Property):
    """``REPLACE TABLE``, which wants the table to be there, unlike ``CREATE OR REPLACE``."""

    arg_types = {}


class ModelColumnsProperty(exp.Property):
    """``INPUT (…)`` or ``OUTPUT (…)`` of a model."""

    arg_types = {"this": True, "expressions": True}


class RefreshProperty(exp.Property):
    """``FRESHNESS = INTERVAL …`` or ``REFRESH_MODE = …`` of a materialized table."""

    arg_types = {"this": True, "value": True}


class MetadataColumnConstraint(exp.Expression, exp.ColumnConstraintKind):
    """``METADATA [FROM 'key'] [VIRTUAL]``."""

    arg_types = {"this": False, "virtual": False}


class DistributedByProperty(exp.Property):
    """``DISTRIBUTED BY [HASH](a, b) INTO 4 BUCKETS``."""

    arg_types = {"this": False, "expressions": False, "buckets": False}


class TableLikeProperty(exp.Property):
    """``LIKE t (INCLUDING ALL …)``; ``expressions`` are ``LikeOption`` nodes."""

    arg_types = {"this": True, "expressions": False}


class LikeOption(exp.Expression):
    """``INCLUDING OPTIONS``: the word of the feature and INCLUDING, EXCLUDING or OVERWRITING."""

    arg_types = {"this": True, "strategy": True}


class UsingResourcesProperty(exp.Property):
    """``USING JAR 'a', JAR 'b'``; each expression is the word and the address as text."""

    arg_types = {"expressions": True}


class TableFunction(exp.Expression, exp.UDTF):
    """A function in FROM: ``TABLE(TUMBLE(TABLE t, …))``, ``LATERAL TABLE(f(x))``, ``f(x)``.

    Tables that it is given are ``TableArgument`` nodes among its expressions, so that whoever
    walks the tree for tables finds them.
    """

    arg_types = {
        "this": True,
        "expressions": False,
        "lateral": False,
        "wrapped": False,
        "alias": False,
        "joins": False,
    }


class TableArgument(exp.Expression):
    """``TABLE t PARTITION BY a ORDER BY b`` or a query in brackets, given to a table function."""

    arg_types = {"this": True, "partition_by": False, "order": False}


class NamedArgument(exp.Expression):
    """``NAME => value``; the name is an ``exp.Identifier``."""

    arg_types = {"this": True, "expression": True}


class ModelArgument(exp.Expression):
    """``MODEL m``, given to a table function; the name is a word, not a table."""

    arg_types = {"this": True}


class Descriptor(exp.Expression):
    """``DESCRIPTOR(a)``: names of columns, not references to them."""

    arg_types = {"expressions": True}


class PatternTable(exp.Expression, exp.UDTF):
    """``t MATCH_RECOGNIZE (…) AS m``: the matches of a pattern, as a table.

    Its columns: with ONE ROW PER MATCH (also when ``rows`` is None) those of ``partition_by``,
    then the measures; with ALL ROWS PER MATCH those of the input, then the measures. Inside of it
    ``A.price`` is the column ``price`` of the input, as long as ``A`` is a pattern variable.

    Args:
        this: The input: an ``exp.Table`` (with hints, version; never an alias) or ``exp.Subquery``.
        partition_by: Expressions, mostly ``exp.Column``; None without the clause.
        order: ``exp.Order`` or None.
        measures: ``exp.Alias`` nodes: value and output name; None without the clause.
        rows: ``"ONE ROW PER MATCH"``, ``"ALL ROWS PER MATCH[ …]"`` as text, or None.
        after: What follows AFTER MATCH, as text (``"SKIP PAST LAST ROW"``), or None.
        pattern: What stands in the brackets of PATTERN, as text.
        within: The ``exp.Interval`` of WITHIN, or None.
        subsets: ``PatternSubset`` nodes, or None.
        define: ``PatternVariable`` nodes, at least one.
        alias: ``exp.TableAlias`` or None.
        joins: As in ``exp.Table``.
    """

    arg_types = {
        "this": True,
        "partition_by": False,
        "order": False,
        "measures": False,
        "rows": False,
        "after": False,
        "pattern": True,
        "within": False,
        "subsets": False,
        "define": True,
        "alias": False,
        "joins": False,
    }


class PatternVariable(exp.Expression):
    """``B AS B.price > 1`` in DEFINE: the variable's identifier and its condition."""

    arg_types = {"this": True, "expression": True}


class PatternSubset(exp.Expression):
    """``S = (A, B)`` in SUBSET: an identifier for the rows of several variables."""

    arg_types = {"this": True, "expressions": True}


class MatchedFunction(exp.Expression):
    """``FINAL LAST(A.price)``: a function of a measure after RUNNING or FINAL (``kind``)."""

    arg_types = {"this": True, "kind": True}


class TypedLiteral(exp.Expression):
    """``TIMESTAMP '…'``: its precision is that of the text, which a CAST would not keep."""

    arg_types = {"this": True, "kind": True}


class MapConstructor(exp.Expression):
    """``MAP['key', value, …]``."""

    arg_types = {"expressions": False}


class FunctionWithClauses(exp.Expression):
    """A function whose arguments end in keywords: ``JSON_VALUE(x, '$.a' RETURNING INT)``."""

    arg_types = {"this": True, "expressions": False, "clauses": False}


class IsJson(exp.Expression):
    """``a IS JSON [VALUE | OBJECT | ARRAY | SCALAR]``; ``kind`` is that word or None."""

    arg_types = {"this": True, "kind": False}
