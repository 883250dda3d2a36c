"""The state of NumPy and torch in which this process computes a run, whatever the program around it has set.

A program may have made float64 torch's default, or underflow an error of NumPy's, and may call in the block of
`torch.autocast` or `torch.no_grad`. Its runs have the same bits as all others. Afterwards it finds its settings, and
torch's random generator and number of threads, as they were.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType


class _Thread(threading.local):
    """What is known of a thread.

    Attributes:
        depth: in how many blocks of `numeric_state` it is.
        is_single: whether torch uses one thread in it until the outermost block ends.
    """

    depth = 0
    is_single = False


class _Process:
    """The settings that all threads share: the first run that begins changes them, the last that ends restores them.

    Attributes:
        threads: how many threads torch used before the first of these runs; None: it uses as many as ever. The others
            may find what the first has set, with which threads of Python begin that have not computed yet.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads: int | None = None
        self._users = 0
        self._restore: list[Callable[[], object]] = []

    @contextmanager
    def settled(self, torch: ModuleType | None) -> Iterator[None]:
        with self.lock:
            if torch is not None and not self._restore:
                self._settle(torch)
            self._users += 1
        try:
            yield
        finally:
            with self.lock:
                self._users -= 1
                if not self._users:
                    self.threads = None
                    while self._restore:
                        self._restore.pop()()

    def _settle(self, torch: ModuleType) -> None:
        generator, state = torch.default_generator, torch.default_generator.get_state()
        self._restore.append(lambda: generator.set_state(state))  # networks draw values, which are replaced
        dtype = torch.get_default_dtype()
        if dtype != torch.float32:
            self._restore.append(lambda: torch.set_default_dtype(dtype))
            torch.set_default_dtype(torch.float32)
        self._restore += _found(torch)
        self._restore += _settle_products(torch)


def _found(torch: ModuleType) -> Iterator[Callable[[], object]]:
    """Yield what restores the settings that runs on a GPU, and those of a network of the program's own, change.

    Not those of TF32: torch has two interfaces for them, and reads neither after a mixture of both was set.
    """
    backends, deterministic = torch.backends, torch.utils.deterministic

    def mode() -> tuple[bool, bool]:
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    def restore() -> None:
        if mode() != (is_on, warns):  # setting it imports torch's compiler: a second and 130 MB
            torch.use_deterministic_algorithms(is_on, warn_only=warns)

    is_on, warns = mode()
    yield restore
    yield partial(backends.mha.set_fastpath_enabled, backends.mha.get_fastpath_enabled())
    for place, name in ((deterministic, "fill_uninitialized_memory"), (backends.cudnn, "benchmark")):
        yield partial(setattr, place, name, getattr(place, name))


def _settle_products(torch: ModuleType) -> list[Callable[[], object]]:
    """Have products computed in float32, and not from factors in bfloat16; return what restores this."""
    restore = list[Callable[[], object]]()
    if not hasattr(torch.backends.mkldnn, "matmul"):  # before torch 2.9
        restore.append(partial(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision()))
        torch.set_float32_matmul_precision("highest")
        return restore
    for name in ("matmul", "conv", "rnn"):  # `torch.set_float32_matmul_precision` sets the first
        layers = getattr(torch.backends.mkldnn, name)
        if layers.fp32_precision in ("bf16", "tf32"):
            restore.append(partial(setattr, layers, "fp32_precision", layers.fp32_precision))
            layers.fp32_precision = "ieee"
    return restore


_thread = _Thread()
_process = _Process()


@contextmanager
def numeric_state() -> Iterator[None]:
    """Within this context, or in a function that it decorates, computation does not depend on the caller's settings."""
    torch = sys.modules.get("torch")  # if it is not loaded, nobody has set anything
    _thread.depth += 1
    try:
        with ExitStack() as stack:
            stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
            stack.enter_context(_process.settled(torch))
            stack.callback(_restore_threads)
            if torch is not None:
                _enter_modes(stack, torch)
            yield
    finally:
        _thread.depth -= 1


def use_one_thread() -> None:
    """Let torch, if it is loaded, compute with one thread, until the end of `numeric_state` if this is within it.

    On small tensors a second thread makes everything 30 to 100 times slower, and the order of sums depends on it.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if _thread.depth:
        with _process.lock:
            if _process.threads is None:
                _process.threads = torch.get_num_threads()
        _thread.is_single = True
    torch.set_num_threads(1)


def _restore_threads() -> None:
    if _thread.depth == 1 and _thread.is_single:
        _thread.is_single = False
        sys.modules["torch"].set_num_threads(_process.threads)


def _enter_modes(stack: ExitStack, torch: ModuleType) -> None:
    """Leave the modes of torch that this thread is in."""
    stack.enter_context(torch.inference_mode(False))
    stack.enter_context(torch.enable_grad())
    for kind in ("cpu", "cuda", "mps"):
        if torch.is_autocast_enabled(kind):
            stack.enter_context(torch.autocast(kind, enabled=False))
    if np.float32(2.0**-140) * np.float32(1) == 0:  # of numbers that small, which it cannot be asked about
        torch.set_flush_denormal(False)
        stack.callback(torch.set_flush_denormal, True)
    if torch.get_default_device() != torch.device("cpu"):  # such a mode costs time in every call of torch
        stack.enter_context(torch.device("cpu"))
