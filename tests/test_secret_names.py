"""A secret is known by its name, whoever reads it: a script, an option, an answer of Flink's."""

from __future__ import annotations

import pytest

from lakehouse_dagster.flink.redaction import redact, secrets_in
from lakehouse_dagster.paimon.masking import masked
from lakehouse_dagster.secret_names import is_secret
from lakehouse_dagster.sql.secret_problems import may_hold_secret
from lakehouse_dagster.sql.sources import mask_secrets


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "jdbc.password",
        "token",
        "pwd",
        "DB_PWD",
        "ssl.passphrase",
        "s3.access-key",
        "s3.secret-key",
        "fs.oss.accessKeyId",
        "fs.s3.accessKeySecret",
        "fs.cosn.userinfo.secretId",
        "fs.azure.account.key.store.dfs.core.windows.net",
        "dlf.access-key-id",
        "dlf.security-token",
        "metrics.reporter.x.service-key",
        "api_key",
        "private.key",
        "properties.sasl.jaas.config",
        "pulsar.client.auth-params",
        "schema-registry.basic-auth.user-info",
        "client.http-headers",
    ],
)
def test_what_names_a_secret_is_known_everywhere(name: str) -> None:
    assert is_secret(name)
    assert secrets_in("", {name: "hush"}) == {"hush"}
    assert redact(f"{name} = hush") == f"{name} = ****"
    assert masked({name: "hush"}) == mask_secrets({name: "hush"}) == {name: "****"}
    assert may_hold_secret(f"WITH ('{name}' = 'hush')")


def test_authorization_keeps_its_scheme_in_a_text() -> None:
    assert is_secret("header.Authorization")
    assert redact("Authorization: Bearer hunter2hunter2") == "Authorization: Bearer ****"


@pytest.mark.parametrize(
    "name",
    [
        "token.provider",
        "data-token.enabled",
        "dlf.token-path",
        "jdbc.user",
        "catalog-key",
        "primary-key",
        "bucket-key",
        "connector",
        "security.kerberos.login.keytab",
    ],
)
def test_a_name_that_only_speaks_of_secrets_or_keys_is_none(name: str) -> None:
    assert not is_secret(name)
    assert redact(f"{name} = shown") == f"{name} = shown"
