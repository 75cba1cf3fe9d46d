"""Names and values that try to be read as SQL."""

from __future__ import annotations

from hypothesis import strategies as st

PIECES = (
    *("`", "``", "'", "''", '"', "\\", "\\'", "\\u0027", "\\u0060", ";", "--", "-- ", "/*", "*/"),
    *(
        "/*+ OPTIONS('a'='b') */",
        "$",
        "${HOME}",
        "${X:-y}",
        "%s",
        "{}",
        "#",
        "@",
        ".",
        ",",
        "(",
        ")",
    ),
    *(" ", "  ", "\t", "\n", "\r", "\r\n", "\u2028", "\x00", "\x1b[2J", "\x7f", "\x85", "\ud800"),
    *(
        "; DROP TABLE t",
        "' OR '1'='1",
        "` AS SELECT 1; --",
        "U&'\\0027'",
        "_UTF8'x'",
        "N'x'",
        "x'00'",
    ),
    *("é", "表", "😀", "\u202e", "\u200b", "e\u0301", "a", "SELECT", "default", "0"),
)

texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.text(max_size=40),
)
