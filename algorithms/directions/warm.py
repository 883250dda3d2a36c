"""Prepares every kernel before it is needed: compiled once per machine, which takes seconds, then loaded from the disk.

Numba caches compiled kernels beside their source if this user may write there, else in the user's cache folder, or in
NUMBA_CACHE_DIR if that is set. If it can write to none of these, each process compiles. The command
`python -m seedbus.algorithms.directions.warm` fills the cache ahead of time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from seedbus.algorithms.directions.contract import ALIGNMENT
from seedbus.algorithms.directions.exact import TERM
from seedbus.algorithms.directions.laws.law import law_of
from seedbus.algorithms.directions.selection import exact_directions
from seedbus.algorithms.directions.selftest import selftest_once

COMPILING = "numba:compile"  # the event that Numba sends before it compiles, but not when it loads from the disk


def warm(on_compile: Callable[[], None]) -> None:
    """Load or compile the kernels.

    Args:
        on_compile: called once, before the first kernel that is compiled; not called if all are loaded.
    """
    from numba.core import event

    class FirstEvent(event.Listener):
        """Calls `on_compile` at the first event only: one compilation contains others."""

        is_over = False

        def on_start(self, event: object) -> None:
            if not self.is_over:
                self.is_over = True
                on_compile()

        def on_end(self, event: object) -> None:
            pass

    with event.install_listener(COMPILING, FirstEvent()):
        use()


def use() -> None:
    """Call every kernel once, with arguments of the types that runs use."""
    selftest_once(law_of("gaussian"))
    exact_directions("gaussian").add_terms(np.zeros(ALIGNMENT, np.int64), np.zeros(1, TERM))


def main() -> None:
    """Compile the kernels that are not on the disk yet, and print whether there were any."""
    messages: list[str] = []
    warm(lambda: messages.append("kernels are compiled, once on this machine"))
    sys.stdout.write(f"{messages[0] if messages else 'kernels were compiled before'}\n")


if __name__ == "__main__":
    main()
