"""Directions on a torch device in torch's own operations: the same bits as the reference, without a compiler.

Philox runs in 64-bit integers and the quantiles are looked up, so every operation is exact or rounded once. Where
Triton and a CUDA device are, `triton_backend` is many times as fast; this one runs on every device that torch has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from seedbus.algorithms.directions.bfloat16 import narrowed_tensor, widened_tensor
from seedbus.algorithms.directions.contract import ALIGNMENT, Place, Step, check_stream, domain, per_block, stream_key
from seedbus.algorithms.directions.exact import FRACTION, Terms, check_terms, rounded_table, whole_table
from seedbus.algorithms.directions.folding import ReplaySteps, UpdateRule
from seedbus.algorithms.directions.laws.law import Law, mirrored
from seedbus.algorithms.directions.philox import MULTIPLIERS, ROUNDS, WEYL
from seedbus.tensors import sqrt

CHUNK: Final = 2048 * ALIGNMENT
"""Coordinates that are computed at a time: so many that calls cost little, so few that they take little memory."""
_LOW: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class TorchDirections:
    """Directions of one law on the device of the tensors, which are one-dimensional, contiguous and float32."""

    law: Law

    def fill(self, out: Tensor, **where: Unpack[Place]) -> None:
        """See `Directions.fill`."""
        check_stream(self.law, len(out), **where)
        for span, first in _chunks(len(out), where.get("start", 0)):
            out[span] = self._direction(out[span], where["seed"], where["step"], where["perturbation"], first)

    def accumulate(
        self, out: Tensor, coefficients: ArrayLike, divisor: Tensor | None = None, **where: Unpack[Step]
    ) -> None:
        """See `Directions.accumulate`."""
        weights = np.asarray(coefficients, np.float32).tolist()
        check_tensors(out, divisor)
        check_stream(self.law, len(out), perturbation=len(weights), **where)
        for span, first in _chunks(len(out), where.get("start", 0)):
            part = out[span].zero_()
            for p, weight in enumerate(weights):
                part += self._direction(part, where["seed"], where["step"], p, first) * weight
            if divisor is not None:
                part /= divisor[span]

    def perturb(
        self, out: Tensor, x: Tensor, scale: float, divisor: Tensor | None = None, **where: Unpack[Place]
    ) -> None:
        """See `Directions.perturb`."""
        check_tensors(out, x, divisor)
        check_stream(self.law, len(out), **where)
        rounded = float(np.float32(scale))
        for span, first in _chunks(len(out), where.get("start", 0)):
            z = self._direction(out[span], where["seed"], where["step"], where["perturbation"], first)
            if divisor is not None:
                z = z / divisor[span]
            torch.add(x[span], z * rounded, out=out[span])

    def fold(self, rule: UpdateRule, fields: Mapping[str, Tensor], steps: ReplaySteps, *, start: int = 0) -> None:
        """See `Folding.fold`."""
        numbers = [
            (row, steps.coefficients[row["first"] : row["first"] + row["count"]].tolist()) for row in steps.steps
        ]
        for span, first in _chunks(len(fields["x"]), start):
            part = {name: tensor[span] for name, tensor in fields.items()}
            stored = part["x"]
            rounds = stored.dtype == torch.int16
            if rounds:
                part["x"] = widened_tensor(stored)
            sqrt_hessian: Tensor | None = None
            for row, weights in numbers:
                if rule.hessian is not None and row["is_first"]:
                    sqrt_hessian = sqrt(part["hessian"])
                delta = torch.zeros_like(part["x"])
                seed = int(row["low"]) | int(row["high"]) << 32
                for p, weight in enumerate(weights):
                    delta += self._direction(delta, seed, int(row["step"]), p, first) * weight
                if sqrt_hessian is not None:
                    delta /= sqrt_hessian
                _update(rule, part, delta, row)
                if rounds:  # and x goes on from what it has been rounded to
                    stored.copy_(narrowed_tensor(part["x"]))
                    part["x"] = widened_tensor(stored)

    def _direction(self, like: Tensor, seed: int, step: int, perturbation: int, start: int) -> Tensor:
        """Return z(step, perturbation)[start : start + len(like)], float32."""
        drawn = _drawn(self.law, like, seed, step, perturbation, start)
        return drawn.to(torch.float32) * 2 - 1 if self.law.is_signs else self._table(like.device)[drawn]

    def _table(self, device: torch.device) -> Tensor:
        return _table(self.law, device)


class TorchExactDirections(TorchDirections):
    """`ExactDirections` on the device of the tensors; sums are int64 [d], one-dimensional and contiguous."""

    def add_terms(self, sums: Tensor, terms: Terms, *, start: int = 0) -> None:
        """See `ExactDirections.add_terms`."""
        check_terms(self.law, len(sums), terms, start, has_sums=is_sums(sums))
        numbers = (terms["number"] << FRACTION if self.law.is_signs else terms["number"]).tolist()  # modulo 2⁶⁴
        for span, first in _chunks(len(sums), start):
            part = sums[span]
            for (low, high, step, perturbation, _), number in zip(terms.tolist(), numbers, strict=True):
                drawn = _drawn(self.law, part, high << 32 | low, step, perturbation, first)
                q = drawn * 2 - 1 if self.law.is_signs else _whole_table(self.law, part.device)[drawn]
                part.add_(q, alpha=number)

    def _table(self, device: torch.device) -> Tensor:
        return _rounded_table(self.law, device)


def _drawn(law: Law, like: Tensor, seed: int, step: int, perturbation: int, start: int) -> Tensor:
    """Return what the stream draws for the coordinates of `like`, int64: numbers of quantiles, or bits for signs."""
    count = -(-len(like) // per_block(law))
    words = _words(law, count, seed, step, perturbation, start // per_block(law), like.device)
    if not law.is_signs:
        return torch.stack((words & 0xFFFF, words >> 16), dim=-1).reshape(-1)[: len(like)]
    bits = (words.unsqueeze(-1) >> torch.arange(32, device=like.device)) & 1
    return bits.reshape(-1)[: len(like)]


def _update(rule: UpdateRule, fields: Mapping[str, Tensor], delta: Tensor, row: Any) -> None:
    """Apply one local step with the direction `delta`, which may be overwritten, in the rule's order of operations."""
    x, update = fields["x"], delta
    if rule.decay and row["is_own"]:
        update = delta + x * _rounded(rule.decay)
    if rule.momentum is not None and row["is_own"]:
        momentum = fields["momentum"]
        momentum *= _rounded(rule.momentum.keep)
        momentum += update * _rounded(rule.momentum.add)
        update = momentum
    x -= update * float(row["rate"])
    hessian = rule.hessian
    if hessian is not None and row["is_own"] and (row["is_last"] or not hessian.is_last_only):
        h = fields["hessian"]
        squares = (delta * delta + _rounded(hessian.epsilon)) * _rounded(hessian.add)
        h *= _rounded(hessian.keep)
        h += squares
        if np.isfinite(hessian.lowest) or np.isfinite(hessian.highest):
            h.clamp_(_rounded(hessian.lowest), _rounded(hessian.highest))


def _words(law: Law, count: int, seed: int, step: int, perturbation: int, first: int, device: torch.device) -> Tensor:
    """Return the words of `count` Philox blocks of a stream, in order, as int64 [4·count]."""
    c0 = torch.arange(first, first + count, dtype=torch.int64, device=device)
    c1, c2, c3 = (torch.full_like(c0, word) for word in (step, perturbation, domain(law)))
    k0, k1 = stream_key(law, seed)
    for _ in range(ROUNDS):
        product0, product1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]  # modulo 2⁶⁴: their bits are those of the product
        high0, high1 = (product0 >> 32) & _LOW, (product1 >> 32) & _LOW
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, product1 & _LOW, high0 ^ c3 ^ k1, product0 & _LOW
        k0, k1 = (k0 + WEYL[0]) & _LOW, (k1 + WEYL[1]) & _LOW
    return torch.stack((c0, c1, c2, c3), dim=-1).reshape(-1)


def _chunks(size: int, start: int) -> list[tuple[slice, int]]:
    """Return the chunks of `size` coordinates, each with its first coordinate in the stream."""
    return [(slice(at, min(at + CHUNK, size)), start + at) for at in range(0, size, CHUNK)]


@lru_cache(maxsize=16)
def _table(law: Law, device: torch.device) -> Tensor:
    return torch.from_numpy(mirrored(law.table).copy()).to(device)


@lru_cache(maxsize=16)
def _rounded_table(law: Law, device: torch.device) -> Tensor:
    return torch.from_numpy(mirrored(rounded_table(law)).copy()).to(device)


@lru_cache(maxsize=16)
def _whole_table(law: Law, device: torch.device) -> Tensor:
    return torch.from_numpy(mirrored(whole_table(law)).astype(np.int64)).to(device)


def is_sums(tensor: Tensor) -> bool:
    """Whether a tensor can hold exact sums."""
    return tensor.dtype == torch.int64 and tensor.ndim == 1 and tensor.is_contiguous()


def _rounded(value: float) -> float:
    return float(np.float32(value))


def check_tensors(out: Tensor, *others: Tensor | None) -> None:
    """Raise ValueError unless every tensor has the dtype, the shape and the device of `out`, float32 [d]."""
    for tensor in (out, *others):
        if tensor is not None and (tensor.dtype, tensor.shape, tensor.device) != (
            torch.float32,
            (len(out),),
            out.device,
        ):
            raise ValueError(
                f"a {tensor.dtype} tensor of shape {tuple(tensor.shape)} on {tensor.device} beside {out.dtype} of "
                f"({len(out)},) on {out.device}"
            )
