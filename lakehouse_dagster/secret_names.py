"""What names a secret: the one place that knows which values no message or record may show."""

from __future__ import annotations

import re

MASK = "****"
"""Stands where a secret was."""

# What Flink masks itself (GlobalConfiguration.SENSITIVE_KEYS) and what storage, Kafka, Paimon and
# people add, in all spellings: `s3.secret-key`, `fs.s3.accessKeySecret`, `DB_PWD`. Of tokens there
# are options that only say where they come from (`token.provider`, `dlf.token-path`).
SECRETS = (
    r"passw|passphrase|pwd(?![a-z])|secret|token(?![-_.]?(?:provider|path|loader|ecs|enabled))"
    r"|credential|jaas|auth-params|basic-auth|http-headers"
    r"|(?:access|account|api|private|service)[-_.]?key"
)
"""What in a name tells of a secret, as a pattern to be matched without case; it has no groups.

``authorization`` is not in it: in a text its value begins with a scheme, such as ``Bearer``.
"""
_SECRET_NAME = re.compile(rf"{SECRETS}|authorization", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether the value of an option, setting or variable of this name must not be shown."""
    return _SECRET_NAME.search(name) is not None
