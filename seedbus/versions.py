"""The versions of installed packages."""

from __future__ import annotations

from functools import cache
from importlib import metadata

version = cache(metadata.version)
"""Return the version of a package by its name, read from its metadata once. Raises `PackageNotFoundError`."""
