"""Exact sums on a GPU: one Triton kernel adds many terms to int64 tensors, so that each coordinate is read once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from seedbus.algorithms.directions.contract import with_key
from seedbus.algorithms.directions.exact import Terms, check_terms, rounded_table, whole_table
from seedbus.algorithms.directions.laws.law import Law
from seedbus.algorithms.directions.torch_backend import is_sums
from seedbus.algorithms.directions.triton_backend import TritonDirections, launch
from seedbus.algorithms.directions.triton_kernels import direction, load, store, unsigned


class TritonExactDirections(TritonDirections):
    """`ExactDirections` on the device of the tensors; sums are int64 [d], one-dimensional and contiguous."""

    def add_terms(self, sums: Tensor, terms: Terms, *, start: int = 0) -> None:
        """See `ExactDirections.add_terms`."""
        check_terms(self.law, len(sums), terms, start, has_sums=is_sums(sums))
        if not terms.size:
            return
        keyed = with_key(self.law, terms)
        words = np.stack([keyed[name] for name in ("low", "high", "step", "perturbation")], axis=1).view(np.int32)
        inputs = (torch.from_numpy(part).to(sums.device) for part in (words, keyed["number"].copy()))
        launch(_add, self.law, sums, sums, _whole(self.law, sums.device), *inputs, terms.size, len(sums), start)

    def _table(self, device: torch.device) -> Tensor:
        return _rounded(self.law, device)


@lru_cache(maxsize=16)
def _whole(law: Law, device: torch.device) -> Tensor:
    """Return the upper half of a law's q on a device, 64 KiB."""
    return torch.from_numpy(whole_table(law).copy()).to(device)


@lru_cache(maxsize=16)
def _rounded(law: Law, device: torch.device) -> Tensor:
    return torch.from_numpy(rounded_table(law).copy()).to(device)


@triton.jit(do_not_specialize=["count", "start"])
def _add(sums, table, words, numbers, count, size, start, COUNT: tl.constexpr, IS_GAUSSIAN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add `count` terms to one block of sums, modulo 2⁶⁴."""
    first = tl.program_id(0).to(tl.int64) * COUNT
    total = load(sums, first, size, 0, COUNT)
    for number in range(count):
        word = words + 4 * number
        low, high = unsigned(tl.load(word)), unsigned(tl.load(word + 1))
        step, p = unsigned(tl.load(word + 2)), unsigned(tl.load(word + 3))
        q = direction(table, start + first, step, p, low, high, COUNT, IS_GAUSSIAN)
        total = total + q.to(tl.int64) * tl.load(numbers + number)
    store(sums, first, size, total, COUNT)
