"""Which Paimon catalogs a script creates, told from its tokens alone."""

from __future__ import annotations

from lakehouse_dagster.sql.model import StatementKind
from lakehouse_dagster.sql.scanner import TokenKind, scan
from lakehouse_dagster.sql.statements import split


def paimon_catalogs(text: str) -> frozenset[str]:
    """Return the names of the Paimon catalogs that a script creates."""
    found = set()
    for statement in split(text):
        if statement.kind is StatementKind.CREATE_CATALOG:
            words = [t for t in scan(statement.text) if not t.is_trivia]
            names = [t for t in words[2:] if t.kind in (TokenKind.WORD, TokenKind.NAME)]
            # CREATE CATALOG [IF NOT EXISTS] name [COMMENT '…'] WITH (…)
            skip = 3 if names[:1] and names[0].is_word("IF") else 0
            texts = [t.text for t in words]
            is_paimon = any(
                texts[at : at + 3] == ["'type'", "=", "'paimon'"] for at in range(len(texts))
            )
            if is_paimon and len(names) > skip:
                found.add(_bare(names[skip].text))
    return frozenset(found)


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
