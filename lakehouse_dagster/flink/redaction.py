"""Flink's exception text made safe to store: its root cause alone, row data and secrets masked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lakehouse_dagster.secret_names import MASK, SECRETS, is_secret

MAX_ROOT_CAUSE_CHARACTERS = 1000

_QUOTED_VALUE = r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\""
_SECRET_ASSIGNMENT = re.compile(
    rf"(?P<key>['\"]?[\w.-]*(?:{SECRETS})[\w.-]*['\"]?\s*(?:=>|=|:)\s*)"
    rf"(?P<value>{_QUOTED_VALUE}|[^\s,;)}}\]]+)",
    re.IGNORECASE,
)
# A look-ahead, tried at every quote: an apostrophe in a comment must not shift the pairs.
_OPTION_ASSIGNMENT = re.compile(r"(?='((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)')")
_URL_PASSWORD = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/@'\"]+@", re.IGNORECASE)
_AUTHORIZATION = re.compile(r"\b(?P<scheme>Bearer|Basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)

# Each names a place where Flink, its formats or Java put a user's data into a message. What follows
# is masked up to the last closing sign, since data can hold any sign itself.
_ROW_DATA = (
    # RowData and Row: `+I[1, Ann]`, `-U(1,Ann)`
    re.compile(r"(?P<before>[+-][IUD])(?:\[.*(?:\]|$)|\(.*(?:\)|$))", re.DOTALL),
    # Kafka's ConsumerRecord: topic, partition and offset stay, key, value and headers go
    re.compile(
        r"(?P<before>\b(?:Consumer|Producer)Record\([^'\"]*?)\b(?:headers|key|value)\s*=.*",
        re.DOTALL,
    ),
    # `Failed to deserialize JSON '{…}'`, `… CSV row 'a,b'`, `Corrupt Debezium JSON message '…'`
    re.compile(
        r"(?P<before>\b(?:JSON|CSV|Avro|Protobuf|Debezium|Canal|Maxwell|OGG|record|row|message)"
        r"[\w ]{0,40}:?\s+)'.*(?:'|$)",
        re.DOTALL | re.IGNORECASE,
    ),
    # Jackson: `Unrecognized token 'Ann': was expecting …`, `[Source: (String)"…"; line: 1]`
    re.compile(r"(?P<before>\bUnrecognized token )'.*'(?=: was expecting)", re.DOTALL),
    re.compile(r"(?P<before>\bSource: \([^)]*\))\".*(?:\"|$)", re.DOTALL),
    # A JSON document anywhere: `{"id":1,…}`
    re.compile(r"(?P<before>)\[?\{\s*\".*(?:\}|$)\]?", re.DOTALL),
    # java.lang.NumberFormatException, java.time.format.DateTimeParseException
    re.compile(r"(?P<before>For input string: )(?:\".*(?:\"|$)|'.*(?:'|$))", re.DOTALL),
    re.compile(r"(?P<before>\bText )'.*'(?= could not be parsed)", re.DOTALL),
    # `Cannot parse "x" as …`; of a wrong option (`Could not parse value 'x' for key 'y'`) keep `y`
    re.compile(
        r"(?P<before>\b(?:parse|cast|convert)(?: \w+){0,3} )"
        r"(?:'.*'(?= for key ')|'.*'|\".*\")",
        re.DOTALL | re.IGNORECASE,
    ),
)


def redact(text: str, *, secrets: Iterable[str] = ()) -> str:
    """The text with row data, option values that hold secrets, and ``secrets`` themselves masked.

    It masks too much rather than too little: what looks like a row or a JSON document goes, up to
    the last sign that could end it.
    """
    for secret in sorted({s for s in secrets if s}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _URL_PASSWORD.sub(rf"\g<scheme>{MASK}@", text)
    text = _AUTHORIZATION.sub(rf"\g<scheme> {MASK}", text)
    text = _SECRET_ASSIGNMENT.sub(rf"\g<key>{MASK}", text)
    for pattern in _ROW_DATA:
        text = pattern.sub(rf"\g<before>{MASK}", text)
    return text


def secrets_in(statement: str, options: Mapping[str, str] | None = None) -> frozenset[str]:
    """The values of secret options in a statement's ``'key' = 'value'`` pairs and in ``options``.

    A server may repeat such a value in an error without its key; who knows the values can mask them
    wherever they stand.
    """
    pairs = [
        (key.replace("''", "'"), value.replace("''", "'"))
        for key, value in _OPTION_ASSIGNMENT.findall(statement)
    ]
    pairs.extend((options or {}).items())
    # Very short values are left: masking every "1" would make messages unreadable.
    return frozenset(value for key, value in pairs if len(value) > 2 and is_secret(key))


def root_cause(stack_trace: str, *, secrets: Iterable[str] = ()) -> str:
    """The last cause that a Java stack trace names, as ``ShortClassName: message``, redacted.

    Flink's REST answers hold whole stack traces, in which exceptions of other processes are nested
    as text; the last exception named is the one that started it. Calcite's position (``From line
    1, column 8 …``) is kept where it stands one level above.
    """
    causes = _causes(stack_trace)
    if not causes:
        message = " ".join(stack_trace.split()) or "no reason given"
    else:
        name, message = causes[-1]
        if len(causes) > 1 and causes[-2][0] == "CalciteContextException" and message:
            above = causes[-2][1]
            message = above if above.endswith(message) else message
        message = f"{name}: {message}" if message else name
    # It stands within our sentences.
    message = redact(message, secrets=secrets).rstrip(". ") or "no reason given"
    if len(message) > MAX_ROOT_CAUSE_CHARACTERS:
        message = f"{message[: MAX_ROOT_CAUSE_CHARACTERS - 1]}…"
    return message


_EXCEPTION = re.compile(
    r"(?:Caused by: |\[?Internal server error\., <Exception on server side:\s*)?"
    r"(?:[a-z_][\w$]*\.)+(?P<name>[A-Z][\w$]*)(?:: (?P<message>.*)|:?\s*)$"
)
_NOT_MESSAGE = re.compile(
    r"\s+(?:at |\.\.\. \d+ |Suppressed: |Caused by: )"
    r"|<?Exception on server side:|End of exception on server side>"
    r"|Was expecting(?: one of)?:"  # the parser's list of tokens, up to hundreds of lines
)


def _causes(stack_trace: str) -> list[tuple[str, str]]:
    """All exceptions named at the trace's outer level: short class name and message, in order."""
    causes: list[tuple[str, list[str]]] = []
    in_message = False
    for line in stack_trace.replace("\r\n", "\n").split("\n"):
        if _NOT_MESSAGE.match(line):
            in_message = False
        elif found := _EXCEPTION.match(line):
            causes.append((found["name"].rpartition("$")[2], [found["message"] or ""]))
            in_message = True
        elif in_message:
            # Messages of several lines: "Missing required options are:", then the names.
            causes[-1][1].append(line)
    return [(name, _without_nested_class(" ".join(" ".join(m).split()))) for name, m in causes]


def _without_nested_class(message: str) -> str:
    """Java prints ``new Exception(cause)`` as ``Exception: pkg.Cause: message``; drop ``pkg.``."""
    return re.sub(r"^(?:[a-z_][\w$]*\.)+([A-Z][\w$]*)(?=: |$)", r"\1", message)
