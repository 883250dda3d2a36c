"""Python's cyclic garbage collector, kept from looking again and again at objects that live as long as a run."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

BuiltToLast = Callable[[], AbstractContextManager[None]]
"""Makes a context in which nothing is collected; the collector never looks at what was built in it."""


@contextmanager
def collected_after() -> Iterator[BuiltToLast]:
    """Yield what makes contexts in which lasting objects are built; from the end on they are collected as others are.

    Of a million members' objects all are still needed whenever the collector looks, which it otherwise does each time
    that their number has grown by a quarter. Where the program itself has exempted objects (`gc.freeze`), or another
    run in it has, none are exempted here: Python can only end it for all of them together.
    """
    is_free = gc.get_freeze_count() == 0

    @contextmanager
    def built_to_last() -> Iterator[None]:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if is_free:
                gc.freeze()
            if was_enabled:
                gc.enable()

    try:
        yield built_to_last
    finally:
        if is_free:
            gc.unfreeze()
