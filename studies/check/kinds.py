"""Which file of this room has the promises of which kind."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

HOMES = {
    "algorithm": "algorithm",
    "channel": "channel",
    "codec": "codec",
    "fault": "fault",
    "law": "law",
    "partition": "partition",
    "rule": "rule",
    "selection policy": "selection",
    "task": "task",
    "tracker": "tracker",
}
"""What a thing of a kind is called → its file. A method is checked as the algorithm that it makes."""


def home(noun: str) -> ModuleType:
    """Return the module with the promises of a kind.

    It has `CONTRACT`, and it may have `RUNS`, and `WORKERS`, which need worker processes: functions of a `subject_of`.
    `results` of that, if it has one, is what another process has to find, too.
    """
    return import_module(f"seedbus.studies.check.{HOMES[noun]}")


def subject_of(noun: str, model: Any) -> Any:
    """Return what is examined of a thing of a kind: what `subject` in its file makes of it, or the thing itself."""
    return getattr(home(noun), "subject", lambda thing: thing)(model)
