"""What computes here: the versions of installed packages, and the processor."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path


@cache
def version(package: str) -> str:
    """Return the version of a package by its name, read from its metadata once. Raises `PackageNotFoundError`."""
    from importlib import metadata

    return metadata.version(package)


def minor_of(whole: str) -> str:
    """Return the minor version of a version: 0.2 of 0.2.1. Within one, runs have the same bits, files and messages."""
    return ".".join(whole.split(".")[:2])


def processor(what: str = "model name") -> str:
    """Return what Linux calls this machine's processor, or another of its values; "" where it says none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(what)), "")
