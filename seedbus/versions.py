"""The versions of installed packages."""

from __future__ import annotations

from functools import cache


@cache
def version(package: str) -> str:
    """Return the version of a package by its name, read from its metadata once. Raises `PackageNotFoundError`."""
    from importlib import metadata

    return metadata.version(package)


def minor_of(whole: str) -> str:
    """Return the minor version of a version: 0.2 of 0.2.1. Within one, runs have the same bits, files and messages."""
    return ".".join(whole.split(".")[:2])
