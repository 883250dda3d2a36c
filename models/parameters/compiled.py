"""A loss compiled by torch for batches of one shape: slower to start, a little faster from then on.

The compiled loss has other bits than the loss itself (its operations are fused), so which of them a run uses is in its
scenario. What is compiled is kept in the user's cache, and is the same for all processes that share it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from seedbus.models.data.idx import cache_folder
from seedbus.models.errors import DataError

COMPILERS = ("g++", "clang++")

Loss = Callable[[Tensor, Tensor], Tensor]


def compiled(loss: Loss, inputs: Tensor, labels: Tensor) -> Loss:
    """The loss for batches that look like this one; takes seconds, or a minute the first time on a machine.

    Raises `DataError` where it cannot be had.
    """
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else COMPILERS
    expected = f"{' or '.join(wanted)} and its headers, or task.forward: eager"
    if not any(map(shutil.which, wanted)):
        raise DataError("task.forward: compiled", "no C++ compiler here", expected)
    with suppress(RuntimeError):  # a user without a home
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    # in this process: others would outlive it, where it is killed
    made = torch.compile(loss, fullgraph=True, dynamic=False, options={"compile_threads": 1})
    with torch.inference_mode():
        try:
            made(inputs, labels)
        except Exception as error:  # whatever a compiler, a full disk or torch itself can come up with
            first = str(error).strip().partition("\n")[0]
            raise DataError("task.forward: compiled", f"that it cannot be compiled here ({first})", expected) from None
    return made
