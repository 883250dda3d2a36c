"""What the user gave, asked again: whether it answers the same, whatever numbers random generators give meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch

CALLS = 3
DRAWN_CALLS = 32
"""Calls of what takes numbers from a generator: a rare draw, such as that of a few labels, changes few answers."""

T = TypeVar("T")
_ONE_AT_A_TIME = threading.RLock()
"""Held while generators are set, of which a process has one of each kind for all its threads."""


def random_state() -> tuple[Any, ...]:
    """Return the states of the generators that torch, NumPy and Python share among all code: equal if none has drawn.

    Generators on GPUs are not among them.
    """
    state: Any = np.random.get_state()  # noqa: NPY002  # the generator that users' code shares
    _, keys, *others = state
    return torch.default_generator.get_state().numpy().tobytes(), keys.tobytes(), others, random.getstate()


@contextmanager
def generators_kept(key: int | None = None) -> Iterator[None]:
    """Leave the generators of torch, NumPy and Python as they were; one thread at a time is in this context.

    Args:
        key: 64 bits with which they begin; None: they begin as they are.
    """
    with _ONE_AT_A_TIME:
        before = torch.default_generator.get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
        if key is not None:
            torch.default_generator.manual_seed(key)
            np.random.seed([key & 0xFFFFFFFF, key >> 32])  # noqa: NPY002
            random.seed(key)
        try:
            yield
        finally:
            torch.default_generator.set_state(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
            random.setstate(before[2])


def repeated(call: Callable[[], T], equal: Callable[[T, T], bool], calls: int = CALLS) -> tuple[T, bool]:
    """Return the answer of a first call, and whether further calls give the same.

    Args:
        call: what is called; it may raise.
        equal: whether two answers are the same.
        calls: how many calls are made of what draws from none of the generators; of others, `DRAWN_CALLS`.
    """
    with generators_kept(0):  # the same draws in each process, so the same verdict
        before, first = random_state(), call()
        more = calls if random_state() == before else DRAWN_CALLS
        return first, all(equal(first, call()) for _ in range(more - 1))
