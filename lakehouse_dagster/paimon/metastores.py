"""The metastores that a Paimon catalog can have: what each needs, and what does not go with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum

from lakehouse_dagster.errors import ConfigurationError


class Metastore(str, Enum):
    """Who knows which tables a catalog has (Paimon's option ``metastore``)."""

    FILESYSTEM = "filesystem"
    """The folders of the warehouse themselves."""
    JDBC = "jdbc"
    """Tables of a relational database."""
    REST = "rest"
    """A server that speaks Paimon's REST protocol, such as DLF."""
    HIVE = "hive"
    """A Hive metastore."""


def metastore_named(written: str, catalog: str) -> Metastore:
    """The metastore of that name; raises ``ConfigurationError`` naming those there are."""
    try:
        return Metastore(written)
    except ValueError:
        known = ", ".join(metastore.value for metastore in Metastore)
        raise ConfigurationError(
            f"The Paimon catalog {catalog} has an unknown metastore {written!r}.",
            remedy=f"Write one of {known}, or leave it out for filesystem.",
            field=("metastore",),
        ) from None


def check_metastore(
    metastore: Metastore, catalog: str, uri: str | None, options: Mapping[str, str]
) -> None:
    """Raise ``ConfigurationError`` unless the address and options fit the metastore.

    Neither address nor option values, which may be secret, are repeated in the message.
    """
    if uri is not None and not uri.strip():
        raise ConfigurationError(
            f"The uri of the Paimon catalog {catalog} is empty.",
            remedy="Fill it in.",
            field=("uri",),
        )
    _CHECKS[metastore](f"The Paimon catalog {catalog}", uri, options)


def _where(uri: str | None) -> tuple[str, ...]:
    """Which setting is wrong: the address, or what demands one where there is none."""
    return ("metastore",) if uri is None else ("uri",)


_LOCK_OPTIONS = re.compile(r"^lock([.-]|$)")
_JDBC_PASSWORD = re.compile(r"(?i)[?&;][^=]*password=|//[^/@]*:[^/@]*@")


def _filesystem(who: str, uri: str | None, options: Mapping[str, str]) -> None:
    if uri is not None:
        raise ConfigurationError(
            f"{who} has a uri, but the metastore filesystem has no server.",
            remedy="Write metastore: jdbc, rest or hive beside it, or take the uri out.",
            field=("uri",),
        )


def _jdbc(who: str, uri: str | None, options: Mapping[str, str]) -> None:
    if uri is None or not uri.startswith("jdbc:"):
        raise ConfigurationError(
            f"{who} has the metastore jdbc, but no uri that starts with jdbc:.",
            remedy="Write uri: jdbc:postgresql://host:5432/database.",
            field=_where(uri),
        )
    if _JDBC_PASSWORD.search(uri):
        raise ConfigurationError(
            f"The uri of {who[0].lower()}{who[1:]} holds a password, which would be shown.",
            remedy="Give user and password as the options jdbc.user and jdbc.password.",
            field=("uri",),
        )


def _rest(who: str, uri: str | None, options: Mapping[str, str]) -> None:
    if uri is None or not uri.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"{who} has the metastore rest, but no uri of its server.",
            remedy="Write uri: https://host/…, and the warehouse's name as warehouse.",
            field=_where(uri),
        )
    provider = options.get("token.provider")
    if provider not in ("bear", "dlf"):
        raise ConfigurationError(
            f"{who} has the metastore rest, but its option token.provider is "
            f"{'missing' if provider is None else 'neither bear nor dlf'}.",
            remedy="Write token.provider: bear with the option token, or token.provider: dlf with "
            "the options dlf.region, dlf.access-key-id and dlf.access-key-secret.",
            field=("options", "token.provider"),
        )
    if provider == "bear" and "token" not in options:
        raise ConfigurationError(
            f"{who} has token.provider bear, but no token.",
            remedy="Give it as the option token, from an environment variable.",
            field=("options", "token.provider"),
        )
    _refuse_lock(who, "rest", options)


def _hive(who: str, uri: str | None, options: Mapping[str, str]) -> None:
    if uri is None and "hive-conf-dir" not in options:
        raise ConfigurationError(
            f"{who} has the metastore hive, but no uri.",
            remedy="Write uri: thrift://host:9083, or the option hive-conf-dir with the folder of "
            "hive-site.xml on the Flink side.",
            field=("metastore",),
        )
    if uri is not None and not uri.startswith("thrift://"):
        raise ConfigurationError(
            f"{who} has the metastore hive, but its uri does not start with thrift://.",
            remedy="Write uri: thrift://host:9083.",
            field=("uri",),
        )


def _refuse_lock(who: str, metastore: str, options: Mapping[str, str]) -> None:
    locks = sorted(key for key in options if _LOCK_OPTIONS.match(key))
    if locks:
        raise ConfigurationError(
            f"{who} has the option {', '.join(locks)}, but with the metastore {metastore} the "
            "server commits, and nothing is locked.",
            remedy="Take it out.",
            field=("options", locks[0]),
        )


_CHECKS: dict[Metastore, Callable[[str, str | None, Mapping[str, str]], None]] = {
    Metastore.FILESYSTEM: _filesystem,
    Metastore.JDBC: _jdbc,
    Metastore.REST: _rest,
    Metastore.HIVE: _hive,
}
