"""Simulated power cuts: the process stops at a given call of a method."""

from __future__ import annotations

from typing import Any

import pytest


class PowerCut(BaseException):
    """Stands for a power cut. Handlers of `Exception` do not catch it."""


def cut_power(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, at: int, *, before: bool) -> None:
    """Cut the power at the `at`-th call of a method, before or after the method does its work."""
    original, calls = getattr(owner, name), [0]

    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == at and before:
            raise PowerCut
        result = original(self, *arguments, **options)
        if calls[0] == at:
            raise PowerCut
        return result

    monkeypatch.setattr(owner, name, method)
