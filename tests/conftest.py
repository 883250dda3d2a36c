"""What all tests have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_traces(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What data leaves in a cache goes into the tests' own folder, for the processes that they start too."""
    patch = pytest.MonkeyPatch()
    patch.setenv("SEEDBUS_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, where there is one: for thousands of files of which none is worth a disk."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(prefix="seedbus-", dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)
