"""What every job of ours carries on the cluster, so that it is known again without our database.

The Flink job id of an incarnation follows from its number, so a job is normally known by its id. A
job whose number the database has forgotten (lost, or an older backup) is known by this marker, and
a job of the same name that lacks it was started by somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

GLOBAL_JOB_PARAMETERS = "pipeline.global-job-parameters"
_PREFIX = "lakehouse."


@dataclass(frozen=True)
class Marker:
    """Which incarnation of which job of which lakehouse a Flink job is.

    ``operator_name`` is what its operator ids are made from; empty when they are Flink's own.
    """

    identity: str
    job: str
    number: int
    operator_name: str


def marker_parameters(marker: Marker, own: str | None = None) -> str:
    """The value of ``pipeline.global-job-parameters``: the script's own ones, then the marker.

    Values are percent-encoded: the option is a list of ``key:value`` with ``,`` between them.
    """
    ours = {
        "identity": marker.identity,
        "job": marker.job,
        "incarnation": str(marker.number),
        "operator-name": marker.operator_name,
    }
    # Flink takes no empty value.
    text = ",".join(
        f"{_PREFIX}{key}:{quote(value, safe='')}" for key, value in ours.items() if value
    )
    return f"{own},{text}" if own else text


def read_marker(user_config: Mapping[str, str]) -> Marker | None:
    """The marker in a job's configuration (``GET /jobs/:id/config``); None where there is none."""
    identity, job, number = (
        user_config.get(f"{_PREFIX}{key}") for key in ("identity", "job", "incarnation")
    )
    if not identity or not job or not number or not number.isdecimal():
        return None
    operator_name = user_config.get(f"{_PREFIX}operator-name", "")
    return Marker(unquote(identity), unquote(job), int(number), unquote(operator_name))
