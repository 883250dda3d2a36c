"""Kernels are compiled before a run needs them, and a notice explains the wait."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from worlds import scenario

from seedbus.algorithms.directions import warm as module
from seedbus.algorithms.directions.warm import COMPILING, warm
from seedbus.scenarios.reporting.progress import Bar, Lines
from seedbus.scenarios.running.prepare import bind_for_clients

SENTENCE = "compiling kernels, once on this machine…"


@pytest.fixture
def missing_kernels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that simulates a number of kernels missing from the disk cache."""
    from numba.core import event

    def set_count(count: int) -> None:
        def use() -> None:
            for _ in range(count):
                with event.trigger_event(COMPILING, data={}):
                    pass

        monkeypatch.setattr(module, "use", use)

    return set_count


@pytest.mark.parametrize(("count", "times"), [(0, 0), (1, 1), (3, 1)])
def test_a_notice_appears_once_and_only_if_something_is_compiled(missing_kernels: Any, count: int, times: int) -> None:
    missing_kernels(count)
    notices: list[str] = []
    warm(lambda: notices.append("compiling"))
    assert len(notices) == times


def test_no_notice_appears_for_what_is_compiled_later(missing_kernels: Any) -> None:
    from numba.core import event

    missing_kernels(0)
    notices: list[str] = []
    warm(lambda: notices.append("compiling"))
    with event.trigger_event(COMPILING, data={}):
        assert not notices


@pytest.mark.parametrize(("count", "is_terminal", "times"), [(2, True, 1), (0, True, 0), (2, False, 0)])
def test_a_terminal_with_a_bar_shows_one_line_and_a_log_none(
    missing_kernels: Any, count: int, is_terminal: bool, times: int
) -> None:
    missing_kernels(count)
    shown = io.StringIO()
    watcher = (Bar if is_terminal else Lines)(
        scenario(), Console(file=shown, force_terminal=is_terminal, color_system=None, width=100)
    )
    bind_for_clients(scenario(), watcher.noted)
    watcher.close()
    assert shown.getvalue().count(SENTENCE) == times


def test_a_machine_without_numba_has_nothing_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba.core", None)
    warm(lambda: pytest.fail("there is nothing to tell of"))


@pytest.mark.slow
def test_a_run_needs_no_kernel_that_was_not_compiled_beforehand(tmp_path: Path) -> None:
    """It runs in a separate process: kernels that other tests have loaded would hide a missing one."""
    code = """
import sys
from pathlib import Path
from seedbus.algorithms.directions import numba_backend as kernels, numba_fold
from seedbus.algorithms.directions.warm import warm
from worlds import HISO, scenario
from seedbus.scenarios.running.run import run

def loaded():
    every = (kernels._fill, kernels._accumulate, kernels._perturb, numba_fold._fold)
    return [len(each.overloads) for each in every]

warm(lambda: None)
before = loaded()
changes = {"stop": {"rounds": 3}, "verify": False}
signs = {"name": "decomfl", "directions": "rademacher", "local_steps": 2, "learning_rate": 0.001}
for number, each in enumerate((HISO, signs)):
    run(scenario(algorithm=each, **changes), Path(sys.argv[1]) / str(number))
print(before, loaded())
"""
    support = Path(__file__).parents[2] / "support"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=support)
    assert done.stdout.strip() == "[1, 1, 1, 1] [1, 1, 1, 1]", done.stderr


@pytest.mark.slow
def test_the_disk_cache_is_filled_once(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "seedbus.algorithms.directions.warm"]
    first, second = (subprocess.run(command, env=environment, capture_output=True, text=True) for _ in range(2))
    assert first.stdout == "kernels are compiled, once on this machine\n", first.stderr
    assert second.stdout == "kernels were compiled before\n" and list(tmp_path.rglob("*.nbc"))
