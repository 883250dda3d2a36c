"""Directions for vectors on a torch device: the backend for tensors that the device has, behind the common contract."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Unpack

from numpy.typing import ArrayLike

from seedbus.algorithms.directions.contract import Place, Step
from seedbus.algorithms.directions.exact import Sums, Terms
from seedbus.algorithms.directions.folding import ReplaySteps, UpdateRule
from seedbus.algorithms.directions.laws.law import Law
from seedbus.vector import Vector


@dataclass(frozen=True)
class TensorDirections:
    """Directions of one law, written to `TensorVector`s.

    Attributes:
        backend: does the same on their tensors.
    """

    backend: Any

    @property
    def law(self) -> Law:
        law: Law = self.backend.law
        return law

    def fill(self, out: Vector, **where: Unpack[Place]) -> None:
        """See `Directions.fill`."""
        self.backend.fill(_tensor(out), **where)

    def accumulate(
        self, out: Vector, coefficients: ArrayLike, divisor: Vector | None = None, **where: Unpack[Step]
    ) -> None:
        """See `Directions.accumulate`."""
        self.backend.accumulate(_tensor(out), coefficients, _tensor(divisor), **where)

    def perturb(
        self, out: Vector, x: Vector, scale: float, divisor: Vector | None = None, **where: Unpack[Place]
    ) -> None:
        """See `Directions.perturb`."""
        self.backend.perturb(_tensor(out), _tensor(x), scale, _tensor(divisor), **where)

    def fold(self, rule: UpdateRule, fields: Mapping[str, Vector], steps: ReplaySteps, *, start: int = 0) -> None:
        """See `Folding.fold`."""
        self.backend.fold(rule, {name: _tensor(field) for name, field in fields.items()}, steps, start=start)


class ExactTensorDirections(TensorDirections):
    """`ExactDirections` of one law, written to `TensorVector`s."""

    def add_terms(self, sums: Sums, terms: Terms, *, start: int = 0) -> None:
        """See `ExactDirections.add_terms`."""
        self.backend.add_terms(_tensor(sums), terms, start=start)


def on_device(law: Law, device_type: str) -> TensorDirections:
    """Return directions for vectors on a kind of device: Triton's where its kernels run, else torch's own.

    Triton's kernels run on CUDA, and in its interpreter (TRITON_INTERPRET=1, which only tests want) on the processor.
    """
    if _runs_triton(device_type):
        from seedbus.algorithms.directions.triton_fold import TritonReplay

        return TensorDirections(TritonReplay(law))
    from seedbus.algorithms.directions.torch_backend import TorchDirections

    return TensorDirections(TorchDirections(law))


def exact_on_device(law: Law, device_type: str) -> ExactTensorDirections:
    """Return exact directions for vectors on a kind of device, chosen as by `on_device`."""
    if _runs_triton(device_type):
        from seedbus.algorithms.directions.triton_exact import TritonExactDirections

        return ExactTensorDirections(TritonExactDirections(law))
    from seedbus.algorithms.directions.torch_backend import TorchExactDirections

    return ExactTensorDirections(TorchExactDirections(law))


def _runs_triton(device_type: str) -> bool:
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return device_type == ("cpu" if is_interpreted else "cuda") and find_spec("triton") is not None


def _tensor(vector: Any) -> Any:
    return None if vector is None else vector.tensor
