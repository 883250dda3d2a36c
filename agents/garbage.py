"""Python's cyclic garbage collector, kept from looking again and again at objects that live as long as a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def built_to_last() -> Iterator[None]:
    """Collect nothing while objects are built, and never look at those that were built; until `collected_after` ends.

    Of a million members' objects all are still needed whenever the collector looks, which it otherwise does each time
    that their number has grown by a quarter.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def collected_after() -> Iterator[None]:
    """At the end, let the collector look at all objects again, unless the program itself had exempted some."""
    had_frozen = gc.get_freeze_count() > 0
    try:
        yield
    finally:
        if not had_frozen:
            gc.unfreeze()
