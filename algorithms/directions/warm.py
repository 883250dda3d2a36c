"""Every kernel ready before it is needed: compiled once on a machine, which takes seconds, and then read from the disk.

Numba keeps compiled kernels beside their source where this user may write there, else in the user's own cache, or where
NUMBA_CACHE_DIR says; with none of these, each process compiles. `python -m seedbus.algorithms.directions.warm` fills
that place ahead of time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from seedbus.algorithms.directions.contract import ALIGNMENT
from seedbus.algorithms.directions.folding import STEP, ReplaySteps, UpdateRule
from seedbus.algorithms.directions.selection import compiled
from seedbus.algorithms.directions.selftest import selftest

COMPILING = "numba:compile"  # what Numba says before it compiles; a kernel on the disk is loaded in silence


def warm(tell: Callable[[], None]) -> None:
    """Load or compile the kernels; `tell` is called once, before the first that is compiled. Without Numba: nothing."""
    try:
        from numba.core import event
    except ImportError:
        return

    class First(event.Listener):
        """Tells of the first event that it hears; kernels are compiled one inside the other."""

        has_told = False

        def on_start(self, event: object) -> None:
            if not self.has_told:
                self.has_told = True
                tell()

        def on_end(self, event: object) -> None:
            pass

    with event.install_listener(COMPILING, First()):
        use()


def use() -> None:
    """Call every kernel once, with arguments of the types that runs call them with."""
    selftest(compiled)
    backend = compiled("gaussian")
    moves = ReplaySteps(np.array([(0, 0, 0, 0, 1, 0.0, True, True, True)], STEP), np.zeros(1, np.float32))
    backend.fold(UpdateRule(), {"x": np.zeros(ALIGNMENT, np.float32)}, moves)


def main() -> None:
    """Compile what is not on the disk yet, and say which it was."""
    told: list[str] = []
    warm(lambda: told.append("kernels are compiled, once on this machine"))
    sys.stdout.write(f"{told[0] if told else 'kernels were compiled before'}\n")


if __name__ == "__main__":
    main()
