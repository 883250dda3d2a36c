"""A loss compiled by torch for batches of one shape: slow to start, then slightly faster.

The compiled loss rounds differently from the eager one, because its operations are fused; the scenario says which of
them a run uses. Compiled code is kept in the user's cache, and all processes that share the cache use the same code.
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
    """Compile a loss for batches of one shape; it takes seconds, or a minute the first time on a machine.

    Args:
        loss: maps inputs and labels to the loss.
        inputs: an example batch.
        labels: the labels of that batch.

    Raises:
        DataError: there is no C++ compiler, or the loss cannot be compiled.
    """
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else COMPILERS
    expected = f"{' or '.join(compilers)} and its headers, or task.forward: eager"
    if not any(map(shutil.which, compilers)):
        raise DataError("task.forward: compiled", "no C++ compiler here", expected)
    with suppress(RuntimeError):  # the user has no home directory
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    # compiler processes would outlive this one if it is killed, so it compiles by itself
    compiled_loss = torch.compile(loss, fullgraph=True, dynamic=False, options={"compile_threads": 1})
    with torch.inference_mode():
        try:
            compiled_loss(inputs, labels)
        except Exception as error:  # a compiler, a full disk and torch raise unrelated types
            lines = [line for line in str(error).strip().splitlines() if not line.endswith("raised:")]
            reason = lines[0] if lines else type(error).__name__
            raise DataError(
                "task.forward: compiled", f"a loss that cannot be compiled here ({reason})", expected
            ) from None
    return compiled_loss
