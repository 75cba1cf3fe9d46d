# ruff: noqa: RUF012
"""Syntax tree nodes for what Flink SQL has and sqlglot's own tree lacks."""

from __future__ import annotations

from sqlglot import exp


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


class MetadataColumnConstraint(exp.Expression, exp.ColumnConstraintKind):
    """``METADATA [FROM 'key'] [VIRTUAL]``."""

    arg_types = {"this": False, "virtual": False}


class DistributedByProperty(exp.Property):
    """``DISTRIBUTED BY [HASH](a, b) INTO 4 BUCKETS``."""

    arg_types = {"this": False, "expressions": False, "buckets": False}


class TableLikeProperty(exp.Property):
    """``LIKE t (INCLUDING ALL …)``; the options are kept as text."""

    arg_types = {"this": True, "options": False}


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
    """``NAME => value``."""

    arg_types = {"this": True, "expression": True}


class Descriptor(exp.Expression):
    """``DESCRIPTOR(a)``: names of columns, not references to them."""

    arg_types = {"expressions": True}


class PatternTable(exp.Expression, exp.UDTF):
    """``t MATCH_RECOGNIZE (…) AS m``; the clause is kept as text."""

    arg_types = {
        "this": True,
        "clause": True,
        "alias": False,
        "joins": False,
    }


class TypedLiteral(exp.Expression):
    """``TIMESTAMP '…'``: its precision is that of the text, which a CAST would not keep."""

    arg_types = {"this": True, "kind": True}


class MapConstructor(exp.Expression):
    """``MAP['key', value, …]``."""

    arg_types = {"expressions": False}


class FunctionWithClauses(exp.Expression):
    """A function whose arguments end in keywords: ``JSON_VALUE(x, '$.a' RETURNING INT)``."""

    arg_types = {"this": True, "expressions": False, "clauses": False}
