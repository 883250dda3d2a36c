"""Kernels are compiled before a run needs them, and a notice explains the wait."""

from __future__ import annotations

import io
import json
import os
import platform
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from worlds import scenario

from seedbus.algorithms.directions import warm as module
from seedbus.algorithms.directions.look_ups import fastest
from seedbus.algorithms.directions.warm import COMPILING, warm
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.progress import Bar, Lines
from seedbus.scenarios.running.prepare import bind_for_clients

SENTENCE = "compiling kernels, once on this machine…"
CPUINFO = Path("/proc/cpuinfo")
SOONER = () if CPUINFO.exists() and "avx512f" in CPUINFO.read_text() else pytest.mark.soak
"""Without AVX-512 all tests are those of a processor without it."""


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


@pytest.mark.slow
def test_a_run_needs_no_kernel_that_was_not_compiled_beforehand(tmp_path: Path) -> None:
    """It runs in a separate process: kernels that other tests have loaded would hide a missing one."""
    code = """
import sys
from pathlib import Path
from seedbus.algorithms.directions import numba_backend as kernels, numba_exact, numba_fold
from seedbus.algorithms.directions.warm import warm
from worlds import HISO, scenario
from seedbus.scenarios.running.run import run

def loaded():
    every = (kernels._accumulate, kernels._perturb, numba_fold._fold, numba_exact._add)
    return [len(each.overloads) for each in every]

warm(lambda: None)
before = loaded()
changes = {"stop": {"rounds": 3}, "verify": False}
signs = {"name": "decomfl", "directions": "rademacher", "local_steps": 2, "learning_rate": 0.001}
whole = {"name": "decomfl", "arithmetic": "integer"}
for number, each in enumerate((HISO, signs, whole, signs | whole)):
    run(scenario(algorithm=each, **changes), Path(sys.argv[1]) / str(number))
print(before, loaded())
"""
    support = Path(__file__).parents[2] / "support"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=support)
    assert done.stdout.strip() == "[1, 1, 1, 1] [1, 1, 1, 1]", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "draws"), [("fedavg", False), ("fedzo", True), ("hiso", True)])
def test_only_what_draws_directions_compiles_kernels(algorithm: str, draws: bool, tmp_path: Path) -> None:
    """A first run pays for no kernel that it does not use; what uses one has shown at joining that it is right."""
    code = """
import sys
from pathlib import Path
from worlds import scenario
from seedbus.scenarios.running.run import run

run(scenario(algorithm={"name": sys.argv[2]}, stop={"rounds": 2}), Path(sys.argv[1]))
print("numba" in sys.modules)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "run"), algorithm]
    support = Path(__file__).parents[2] / "support"
    done = subprocess.run(command, capture_output=True, text=True, cwd=support)
    assert done.stdout.strip() == str(draws), done.stderr


# how quantiles are looked up


def test_the_faster_way_is_measured_once_and_kept_in_a_file(tmp_path: Path) -> None:
    calls: list[str] = []

    def work(name: str, seconds: float) -> None:
        calls.append(name)
        time.sleep(seconds)

    works: Any = {"gather": lambda: work("gather", 0.002), "scalar": lambda: work("scalar", 0)}
    assert fastest(str(tmp_path), "1", works) == "scalar" and calls
    calls.clear()
    assert fastest(str(tmp_path), "1", works) == "scalar" and not calls
    assert fastest(str(tmp_path), "2", works) == "scalar" and calls, "other kernels are measured anew"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "content", [b"", b"\xff{", b"[]", b"7", b'{"look_ups": "gather"}', b"of other kernels", b"of no known way"]
)
def test_a_damaged_or_foreign_file_is_measured_anew(content: bytes, tmp_path: Path) -> None:
    works: Any = {"gather": lambda: time.sleep(0.002), "scalar": lambda: None}
    fastest(str(tmp_path), "1", works)
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    other = json.loads(good) | {"look_ups": "gather"}
    changes = {b"of other kernels": {"kernels": "2"}, b"of no known way": {"look_ups": "guess"}}.get(content)
    file.write_bytes(content if changes is None else json.dumps(other | changes).encode())
    assert fastest(str(tmp_path), "1", works) == "scalar"
    assert json.loads(file.read_bytes())["look_ups"] == "scalar"


def test_without_a_folder_that_can_be_written_the_faster_way_is_used_all_the_same(tmp_path: Path) -> None:
    works: Any = {"gather": lambda: time.sleep(0.002), "scalar": lambda: None}
    assert fastest(str(tmp_path / "missing"), "1", works) == fastest(None, "1", works) == "scalar"


def test_the_file_is_for_every_user_of_the_folder_and_one_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    works: Any = {"gather": lambda: time.sleep(0.002), "scalar": lambda: None}
    before = os.umask(0o022)
    try:
        fastest(str(tmp_path), "1", works)
    finally:
        os.umask(before)
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644, "as kernels are"
    file.unlink()
    file.mkdir()
    assert fastest(str(tmp_path), "1", works) == "scalar" and list(tmp_path.iterdir()) == [file]


def test_the_variable_forces_a_way_and_a_wrong_one_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEEDBUS_LOOK_UPS", "gather")
    assert fastest(str(tmp_path), "1", {}) == "gather"
    monkeypatch.setenv("SEEDBUS_LOOK_UPS", "guess")
    with pytest.raises(typer.Exit) as stop, cli_errors():
        fastest(str(tmp_path), "1", {})
    assert stop.value.exit_code == Exit.USAGE
    sentence = "seedbus: SEEDBUS_LOOK_UPS: found 'guess'; expected gather or scalar\n"
    assert capsys.readouterr().err == sentence and not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="compiles for x86-64")
@pytest.mark.parametrize(
    "processor", [pytest.param("haswell", marks=SOONER), pytest.param("znver2", marks=pytest.mark.soak)]
)
def test_kernels_for_processors_without_avx_512_are_compiled_once_and_give_the_same_bits(
    processor: str, tmp_path: Path
) -> None:
    """The tests of directions, replay and exact sums against the reference, in a process that compiles for another."""
    changes = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": "+avx2,+fma", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "seedbus.algorithms.directions.warm"]
    first, second = (subprocess.run(command, env=os.environ | changes, capture_output=True, text=True) for _ in "12")
    assert first.stdout == "kernels are compiled, once on this machine\n", first.stderr
    assert second.stdout == "kernels were compiled before\n" and list(tmp_path.rglob("*.nbc"))
    tests = Path(__file__).parents[1]
    files = [
        tests / "directions/test_directions.py",
        tests / "directions/test_selftest.py",
        tests / "directions/test_exact.py",
        tests / "scalar_only/test_replay.py",
    ]
    names = "bit_for_bit or known_digest or before_they_are_added or integers_of_the_reference"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", names, *map(str, files)],
        env=os.environ | changes,
        capture_output=True,
        text=True,
        cwd=tests.parent,
    )
    assert done.returncode == 0, done.stdout
    measured = [json.loads(file.read_bytes()) for file in tmp_path.rglob("look-ups-*.json")]
    assert {each["processor"] for each in measured} == {processor}
