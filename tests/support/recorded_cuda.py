"""CUDA graphs on a processor: what `torch.cuda` offers for them, as a recorder of torch's operations.

A recording has each operation with the tensors themselves. A replay runs the operations again and writes each result
to where the recording has it, as a graph of kernels does: what Python computed between two operations is not computed
again. Reading a number from a tensor while a recording is made is an error, as it is on a GPU.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Graph(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Stands for `torch.cuda.CUDAGraph`."""

    made: ClassVar[list[Graph]]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[tuple[Any, Any, Any, Any]] = []
        self.replays = 0
        self.made.append(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "_local_scalar_dense" in str(func):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nand more")
        result = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, result))
        return result

    def capture_begin(self, *, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        self.__enter__()  # type: ignore[no-untyped-call]

    def capture_end(self) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def replay(self) -> None:
        self.replays += 1
        for func, args, kwargs, recorded in self._calls:
            for old, new in zip(tree_leaves(recorded), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor):
                    old.copy_(new)


class Stream:
    """Stands for `torch.cuda.Stream`: everything is done in its order anyway."""

    def __init__(self, device: int = 0) -> None:
        self.device = device

    def wait_stream(self, other: Stream) -> None:
        assert isinstance(other, Stream)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[Graph]:
    """Replace the functions of `torch.cuda` that make and launch graphs; returns the class of the graphs."""

    class Own(Graph):  # type: ignore[no-untyped-call]
        made: ClassVar[list[Graph]] = []

    for name, value in {
        "CUDAGraph": Own,
        "Stream": Stream,
        "current_device": lambda: 0,
        "current_stream": Stream,
        "stream": lambda stream: nullcontext(),
        "device": lambda device: nullcontext(),
        "synchronize": lambda: None,
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda mode: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return Own
