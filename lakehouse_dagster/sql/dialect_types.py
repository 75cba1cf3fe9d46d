"""Parsing of Flink's data types (Flink's page "Data Types"), for the Flink dialect."""

from __future__ import annotations

from sqlglot import TokenType, exp, parser
from sqlglot.errors import ParseError

_PLAIN_TYPES = {
    "CHAR": exp.DType.CHAR,
    "VARCHAR": exp.DType.VARCHAR,
    "STRING": exp.DType.TEXT,
    "BOOLEAN": exp.DType.BOOLEAN,
    "BINARY": exp.DType.BINARY,
    "VARBINARY": exp.DType.VARBINARY,
    "BYTES": exp.DType.BLOB,
    "DECIMAL": exp.DType.DECIMAL,
    "DEC": exp.DType.DECIMAL,
    "NUMERIC": exp.DType.DECIMAL,
    "TINYINT": exp.DType.TINYINT,
    "SMALLINT": exp.DType.SMALLINT,
    "INT": exp.DType.INT,
    "INTEGER": exp.DType.INT,
    "BIGINT": exp.DType.BIGINT,
    "FLOAT": exp.DType.FLOAT,
    "DOUBLE": exp.DType.DOUBLE,
    "DATE": exp.DType.DATE,
    "TIME": exp.DType.TIME,
    "TIMESTAMP": exp.DType.TIMESTAMP,
    "TIMESTAMP_LTZ": exp.DType.TIMESTAMPLTZ,
    "NULL": exp.DType.NULL,
    "VARIANT": exp.DType.VARIANT,
}
_GENERIC_TYPES = {"ARRAY": exp.DType.ARRAY, "MULTISET": exp.DType.LIST, "MAP": exp.DType.MAP}
_LITERAL_TYPES = {"DATE", "TIME", "TIMESTAMP"}
_OTHER_SYSTEMS = frozenset(
    ["SERIAL", "BIGSERIAL", "SMALLSERIAL", "MEDIUMINT", "LONGTEXT", "MEDIUMTEXT", "VARCHAR2",
     "NVARCHAR", "NUMBER", "DATETIME", "TEXT", "BLOB", "CLOB", "UUID", "JSON", "UNSIGNED"]
)  # fmt: skip
"""Names of types elsewhere, which are no user-defined types of Flink."""
_NOT_A_TYPE = {"METADATA", "COMMENT", "CONSTRAINT", "PRIMARY", "NOT", "AS", "FIRST", "AFTER"}


class TypeParser(parser.Parser):
    """Adds Flink's data types to the base parser, which knows many that Flink does not."""

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        """Parse a type; with ``check_func`` only where a literal follows (``DATE '…'``)."""
        if check_func and (
            self._curr.text.upper() not in _LITERAL_TYPES
            or self._next.token_type != TokenType.STRING
        ):
            return None
        if self._curr.token_type in (TokenType.STRING, TokenType.NUMBER):
            return None
        return self._parse_flink_type(allow_identifiers)

    def _parse_flink_type(self, allow_named: bool = True) -> exp.DataType | None:
        parsed = self._parse_type_without_suffix(allow_named)
        while parsed is not None and self._match_texts(("ARRAY", "MULTISET")):
            kind = _GENERIC_TYPES[self._prev.text.upper()]
            parsed = exp.DataType(this=kind, expressions=[parsed], nested=True)
        return parsed

    def _parse_type_without_suffix(self, allow_named: bool) -> exp.DataType | None:
        quoted = self._curr.token_type == TokenType.IDENTIFIER
        word = "" if quoted else self._curr.text.upper()
        following = self._next.token_type
        if word == "ROW" and following == TokenType.NEQ:  # `ROW<>`
            self._advance(2)
            return exp.DataType(this=exp.DType.STRUCT, expressions=[], nested=True)
        if word == "ROW" and following in (TokenType.LT, TokenType.L_PAREN):
            self._advance()
            return self._parse_row_type()
        if word in _GENERIC_TYPES and following == TokenType.LT:
            self._advance(2)
            inner = self._parse_csv(self._parse_member_type)
            self._expect(TokenType.GT, ">")
            return exp.DataType(this=_GENERIC_TYPES[word], expressions=inner, nested=True)
        if word == "RAW" and following == TokenType.L_PAREN:
            self._advance()
            arguments = self._parse_wrapped_csv(self._parse_string)
            text = ", ".join(a.sql("flink") for a in arguments)
            return exp.DataType(this=exp.DType.USERDEFINED, kind=f"RAW({text})")
        if word in _PLAIN_TYPES:
            self._advance()
            return self._parse_plain_type(word)
        if word == "INTERVAL" and self._next.token_type != TokenType.STRING:
            self._advance()
            return self._parse_interval_type()
        if allow_named and word not in _NOT_A_TYPE:
            return self._parse_named_type()
        return None

    def _parse_plain_type(self, word: str) -> exp.DataType:
        if word == "DOUBLE":
            self._match_text_seq("PRECISION")
        size = None
        if self._match(TokenType.L_PAREN):
            size = self._parse_csv(self._parse_type_parameter)
            self._match_r_paren()
        kind = _PLAIN_TYPES[word]
        if word in ("CHAR", "VARCHAR", "STRING") and self._match_text_seq("CHARACTER", "SET"):
            self._parse_id_var(any_token=True)  # as Flink prints types; it has only UTF-16LE
        if word == "TIMESTAMP" and self._match_text_seq("WITH", "LOCAL", "TIME", "ZONE"):
            kind = exp.DType.TIMESTAMPLTZ
        elif word == "TIMESTAMP" and self._match_text_seq("WITH", "TIME", "ZONE"):
            kind = exp.DType.TIMESTAMPTZ
        elif word in ("TIME", "TIMESTAMP"):
            self._match_text_seq("WITHOUT", "TIME", "ZONE")
        return exp.DataType(this=kind, expressions=size, nested=False)

    def _parse_type_parameter(self) -> exp.Expr | None:
        number = self._parse_number() or self._parse_var()
        return exp.DataTypeParam(this=number) if number else None

    def _parse_row_type(self) -> exp.DataType:
        closing = TokenType.R_PAREN if self._curr.token_type == TokenType.L_PAREN else TokenType.GT
        self._advance()
        fields: list[exp.Expr] = []
        self._match(TokenType.COMMA)  # Flink takes a comma before the first field
        if self._curr.token_type != closing:
            fields = self._parse_csv(self._parse_row_field)
        self._expect(closing, "the end of ROW's fields")
        return exp.DataType(this=exp.DType.STRUCT, expressions=fields, nested=True)

    def _parse_row_field(self) -> exp.Expr | None:
        name = self._parse_id_var(any_token=True)
        kind = self._parse_member_type()
        constraints: list[exp.Expr] = []
        if self._match(TokenType.STRING):
            comment = exp.Literal.string(self._prev.text)
            constraints.append(exp.ColumnConstraint(kind=exp.CommentColumnConstraint(this=comment)))
        return self.expression(exp.ColumnDef(this=name, kind=kind, constraints=constraints))

    def _parse_member_type(self) -> exp.DataType:
        """Parse a type inside of another, where NOT NULL belongs to the type itself."""
        parsed = self._parse_flink_type()
        if parsed is None:
            raise self._refused("Expected a type")
        if self._match_pair(TokenType.NOT, TokenType.NULL):
            parsed.set("nullable", False)
        else:
            self._match(TokenType.NULL)
        return parsed

    def _parse_interval_type(self) -> exp.DataType:
        start = self._prev
        self._advance_any(ignore_reserved=True)
        self._skip_precision()
        if self._match_text_seq("TO"):
            self._advance_any(ignore_reserved=True)
            self._skip_precision()
        text = self._find_sql(start, self._prev).upper()
        return exp.DataType(this=exp.DType.USERDEFINED, kind=text)

    def _skip_precision(self) -> None:
        if self._match(TokenType.L_PAREN):
            self._parse_number()
            self._match_r_paren()

    def _parse_named_type(self) -> exp.DataType | None:
        """Parse a user-defined structured type by its name."""
        if self._curr.text.upper() in _OTHER_SYSTEMS and self._next.token_type != TokenType.DOT:
            raise self._refused(f"Flink has no type {self._curr.text.upper()}")
        name = self._parse_id_var(any_token=False)
        if name is None:
            return None
        parts = [name.sql("flink")]
        while self._match(TokenType.DOT):
            part = self._parse_id_var(any_token=True)
            parts.append(part.sql("flink") if part else "")
        return exp.DataType(this=exp.DType.USERDEFINED, kind=".".join(parts))

    def _expect(self, token_type: TokenType, what: str) -> None:
        if not self._match(token_type):
            raise self._refused(f"Expected {what}")

    def _refused(self, reason: str) -> ParseError:
        """Return the error to raise at this token, whatever the error level: nothing is guessed."""
        self.raise_error(reason)
        return self.errors[-1]
