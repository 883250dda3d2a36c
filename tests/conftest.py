"""What all tests have in common."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_traces(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What data leaves in a cache goes into the tests' own folder, for the processes that they start too."""
    patch = pytest.MonkeyPatch()
    patch.setenv("SEEDBUS_CACHE", str(tmp_path_factory.mktemp("cache")))
