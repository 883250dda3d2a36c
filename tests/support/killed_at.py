"""Runs the command `seedbus`, and kills it at a call of a method.

    python killed_at.py WHEN METHOD NUMBER ARGUMENT…

WHEN is `before` or `after`, METHOD one of `METHODS`, and NUMBER the number of its call, from 1.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import wraps
from typing import Any

from seedbus.agents.journal.journal import Journal
from seedbus.bus.zeromq import Hub
from seedbus.cli.main import main

METHODS: dict[str, Any] = {"finish": Journal, "post": Hub, "close": Hub}


def killed(when: str, name: str, number: int) -> None:
    """Have this process killed before or after a call of a method."""
    original, calls = getattr(METHODS[name], name), 0

    def reached(now: str) -> None:
        if now == when and calls == number:
            os.kill(os.getpid(), signal.SIGKILL)

    @wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        reached("before")
        result = original(*arguments, **options)
        if name == "post":  # ZeroMQ sends on a thread of its own: those who are told are told before this process dies
            arguments[0]._await_farewells(float("inf")) if calls == number else None
        reached("after")
        return result

    setattr(METHODS[name], name, call)


if __name__ == "__main__":
    killed(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.argv = ["seedbus", *sys.argv[4:]]
    main()
