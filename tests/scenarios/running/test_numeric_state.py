"""Runs compute in a state of NumPy and torch of their own, and leave that of their program as they found it."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds import scenario

import seedbus
from seedbus.agents.observer import NullObserver
from seedbus.models.numeric_state import numeric_state, use_one_thread
from seedbus.scenarios.running import prepare

FEDAVG = {"name": "fedavg", "local_steps": 1, "learning_rate": 0.1}
SMALL = {"task": "digits", "participation": {"clients": 4, "cohort": 2}, "stop": {"rounds": 1}}


@contextmanager
def setting(set_to: Callable[[Any], object], value: Any, before: Any) -> Any:
    """A setting of torch for the time of a test."""
    set_to(value)
    try:
        yield
    finally:
        set_to(before)


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "float64 by default": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
    "another device by default": lambda: torch.device("meta"),
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "bfloat16 for some operations": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "products of bfloat16": lambda: setting(torch.set_float32_matmul_precision, "medium", "highest"),
    "errors for all that NumPy can": lambda: np.errstate(all="raise"),
}


def outcome(folder: Path) -> tuple[str, list[dict[str, Any]], str]:
    results = seedbus.run(SMALL | {"algorithm": FEDAVG}, folder, page=False)
    return results.digest, results.lines, seedbus.replay(folder).digest


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]], str]:
    return outcome(tmp_path_factory.mktemp("usual") / "run")


def found() -> tuple[Any, ...]:
    """What a program can see of the state."""
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    settings = torch.get_default_dtype(), torch.get_default_device(), torch.get_float32_matmul_precision()
    return *modes, *settings, np.geterr(), torch.get_num_threads(), torch.default_generator.get_state().tolist()


@pytest.mark.parametrize("state", STATES)
def test_a_run_has_its_bits_in_any_state_and_leaves_it(state: str, tmp_path: Path, usual: Any) -> None:
    with STATES[state]():
        before = found()
        assert outcome(tmp_path / "run") == usual
        assert found() == before


def test_products_of_bfloat16_are_left_in_older_versions_of_torch_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before torch 2.9 one setting holds for all products."""
    monkeypatch.delattr(type(torch.backends.mkldnn), "matmul")
    with STATES["products of bfloat16"]():
        with numeric_state():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"


def test_the_smallest_numbers_are_not_0_in_a_run_and_again_after_it() -> None:
    with setting(torch.set_flush_denormal, True, False):
        with numeric_state():
            assert np.float32(2.0**-140) * np.float32(1) > 0 and torch.tensor(2.0**-140) * 1 > 0
        assert np.float32(2.0**-140) * np.float32(1) == 0


def test_what_a_gpu_and_a_network_of_ones_own_need_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared() -> tuple[bool, ...]:
        deterministic: Any = torch.utils.deterministic
        attention, cudnn = torch.backends.mha.get_fastpath_enabled(), torch.backends.cudnn.benchmark
        return torch.are_deterministic_algorithms_enabled(), deterministic.fill_uninitialized_memory, attention, cudnn

    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = shared()
    with numeric_state():
        torch.use_deterministic_algorithms(True, warn_only=True)
        monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
        torch.backends.mha.set_fastpath_enabled(False)
        torch.backends.cudnn.benchmark = False
        assert shared() == (True, False, False, False) != before
    assert shared() == before


def test_a_setting_that_no_run_changed_is_not_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "use_deterministic_algorithms", None)  # it would import torch's compiler
    with numeric_state():
        pass


def test_torch_has_its_threads_again_after_a_run(tmp_path: Path) -> None:
    with setting(torch.set_num_threads, 3, torch.get_num_threads()):
        outcome(tmp_path / "run")
        assert torch.get_num_threads() == 3


def test_the_thread_that_hosts_clients_uses_one_thread_even_if_another_run_has_just_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    what = scenario(faults=[])
    monkeypatch.setattr(prepare, "Followers", lambda *given, **options: torch.get_num_threads())
    hosts: Callable[[Any], Any] = prepare.recruit(what, prepare.bind(what), NullObserver())
    with setting(torch.set_num_threads, 3, torch.get_num_threads()), ThreadPoolExecutor(1) as new:
        assert new.submit(hosts, None).result() == 1


def test_within_a_block_torch_keeps_to_one_thread_after_an_inner_one() -> None:
    with setting(torch.set_num_threads, 3, torch.get_num_threads()), numeric_state():
        with numeric_state():
            use_one_thread()
        assert torch.get_num_threads() == 1


def test_what_all_threads_share_is_restored_by_the_last_of_them() -> None:
    with setting(torch.set_default_dtype, torch.float64, torch.float32), ThreadPoolExecutor(1) as other:
        own, others = numeric_state(), numeric_state()
        own.__enter__()
        other.submit(others.__enter__).result()
        own.__exit__(None, None, None)
        assert torch.get_default_dtype() == torch.float32  # the other still needs it
        other.submit(others.__exit__, None, None, None).result()
        assert torch.get_default_dtype() == torch.float64


def test_runs_of_several_threads_leave_torch_its_threads_whichever_ends_first() -> None:
    """A thread that has not computed yet begins with the number that another one has set last."""
    with ExitStack() as stack:
        stack.enter_context(setting(torch.set_num_threads, 3, torch.get_num_threads()))
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(2)]
        states = [numeric_state() for _ in threads]
        for thread, state in zip(threads, states, strict=True):
            thread.submit(state.__enter__).result()
            thread.submit(use_one_thread).result()
            assert thread.submit(torch.get_num_threads).result() == 1
        for thread, state in zip(threads, states, strict=True):
            thread.submit(state.__exit__, None, None, None).result()
        fresh = stack.enter_context(ThreadPoolExecutor(1))
        assert [each.submit(torch.get_num_threads).result() for each in (*threads, fresh)] == [3, 3, 3]


def test_a_program_that_traps_inexact_decimals_can_run_the_quadratic_task(tmp_path: Path) -> None:
    what = {"task": {"name": "quadratic", "dimension": 8}, "algorithm": "decomfl"}
    with decimal.localcontext(prec=3) as context:
        context.traps[decimal.Inexact] = True
        trapped = seedbus.run(SMALL | what, tmp_path / "run", page=False)
    assert trapped.digest == seedbus.run(SMALL | what, tmp_path / "other", page=False).digest
