"""Tiny wheels in a folder, from which the real pip installs without any network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from lakehouse_dagster.local.engines import PythonPackage


def write_wheel(folder: Path, package: PythonPackage, files: Mapping[str, bytes]) -> Path:
    """Write a wheel of the package with these files."""
    name = package.name.replace("-", "_")
    info = f"{name}-{package.version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n"
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_hash(data)},{len(data)}\n" for path, data in content.items())
    wheel = folder / f"{name}-{package.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return wheel


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
