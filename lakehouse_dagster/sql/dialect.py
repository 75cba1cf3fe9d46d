"""The Flink dialect of sqlglot, registered as ``flink`` when this module is imported.

The distribution also names it in the entry-point group ``sqlglot.dialects``, so that
``sqlglot.parse_one(sql, dialect="flink")`` finds it without an import of ours.
"""

from __future__ import annotations

from sqlglot import tokens as _tokens
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy

from lakehouse_dagster.errors import ConfigurationError

if getattr(_tokens, "SQLGLOTC_INSTALLED", False):
    # mypyc refuses to let an interpreted class inherit from a compiled one.
    raise ConfigurationError(
        "The compiled build of sqlglot (sqlglotc) is installed in this environment; a dialect "
        "written in Python, such as Flink's, cannot be added to it. This is about "
        "sqlglot.parse(…, read='flink') in this process alone: definitions and commands of this "
        "package read scripts in a process of its own, where it does not matter.",
        remedy="To use the dialect alone, remove it with `pip uninstall sqlglotc` and install "
        "sqlglot again (`pip install --force-reinstall sqlglot`), or take an environment "
        "without it.",
    )

from lakehouse_dagster.sql.dialect_generator import FlinkGenerator
from lakehouse_dagster.sql.dialect_parser import FlinkParser
from lakehouse_dagster.sql.dialect_tokens import FlinkTokenizer


class Flink(Dialect):
    """Flink SQL, as Flink 1.20 to 2.x reads it.

    Names keep their case, functions stay as they are written, and so do indexes (``a[1]`` is the
    first element; to other dialects it is not shifted).
    """

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE
    NORMALIZE_FUNCTIONS = False

    Tokenizer = FlinkTokenizer
    Parser = FlinkParser
    Generator = FlinkGenerator
