"""What a study prints is compared to the letter, so no line of progress is among it, however slow the machine."""

from __future__ import annotations

import math

import pytest


@pytest.fixture(autouse=True)
def no_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbus.scenarios.reporting.meter.FIRST_LINE_S", math.inf)
