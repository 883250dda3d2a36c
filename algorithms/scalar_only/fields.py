"""The fields of the scalar-only family, what follows from them, and its messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from pydantic import Field, model_validator

from seedbus.algorithms.aggregation.rules import Aggregation, Mean
from seedbus.algorithms.base import BaseAlgorithm
from seedbus.algorithms.contract import BadPayload, Packed
from seedbus.algorithms.directions.laws.gaussian import Gaussian
from seedbus.algorithms.directions.laws.law import AnyLaw
from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.scalar_only import exact
from seedbus.algorithms.scalar_only import payloads as wire
from seedbus.algorithms.scalar_only.exact import Grid
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, ScalarPlan, Scalars
from seedbus.algorithms.scalar_only.precision import INT32, WIRE_FORMATS, Format, WirePrecision
from seedbus.algorithms.schedule import Scheduled, values

Count = Annotated[int, Field(ge=1, lt=2**16)]
Estimator = Literal["forward", "central", "projection", "forward-mode"]
DERIVATIVES = ("projection", "forward-mode")
"""The estimators that perturb nothing."""


class ScalarFields(BaseAlgorithm):
    """The hyperparameters of the family, and how its messages are packed."""

    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"arithmetic": "integer"},
        {"arithmetic": "integer", "precision": "int32"},
    )
    """Settings with which it has further capabilities."""
    _shift: bytes | None = None

    perturbations: Scheduled[Count] = Field(default=10, description="P, directions per local step; may change by round")
    local_steps: Scheduled[Count] = Field(default=1, description="K, local steps per round; may change by round")
    learning_rate: Scheduled[Positive] = Field(default=1e-3, description="η; may change by round")
    smoothing: Scheduled[Positive] = Field(default=1e-3, description="μ of the finite difference; may change by round")
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        lt=1e37,
        description="λ: in local and in global steps λx is added to Δ, before momentum, as torch.optim.SGD adds it to "
        "the gradient; no scalar is sent for it",
    )
    estimator: Scheduled[Estimator] = Field(
        default="forward",
        description="finite differences, forward (P + 1 evaluations a step) or central (2P); or derivatives along "
        "directions: projection, by backpropagation (as costly as 3), or forward-mode, by passes that keep no "
        "activations (3P); may change by round",
    )
    directions: AnyLaw = Field(
        default=Gaussian(), description="law of z's coordinates, or just its name: standard normal, ±1, or a plug-in's"
    )
    aggregation: Aggregation = Field(
        default=Mean(), description="rule that combines the cohort's scalars, or just its name"
    )
    revert: Literal["copy", "light", "compensate"] = Field(
        default="copy",
        description="where losses are evaluated: copy: at a copy of x; light: layer by layer, with memory for x and "
        "one layer only, but more work, to the same bits; compensate: in place, as equation 10, which drifts",
    )
    precision: WirePrecision = Field(
        default="float32",
        description="format of scalars on the wire; bytes: 4, 2, 2 and 4; int32: with arithmetic: integer each client "
        "rounds its own n and reports that (docs/secure-aggregation.md); sign: a bit, and a commit is their majority",
    )
    arithmetic: Literal["float", "integer", "bfloat16"] = Field(
        default="float",
        description="float: x is float32 and commits are folded in order; integer: commits hold whole numbers, x is "
        "their exact sum, and no order or grouping of commits changes a bit (docs/exact-sums.md); bfloat16: x takes 2 "
        "bytes a coordinate, and is rounded after every step, which loses small ones (docs/language-models.md)",
    )
    unit_bits: int | None = Field(
        default=None,
        ge=0,
        le=40,
        description="s: with arithmetic: integer commits are multiples of 2^-s; default: by the largest learning rate, "
        "28 at 1e-3, at most 36",
    )

    @model_validator(mode="after")
    def _reportable(self) -> Self:
        if self._most > wire.REPORTABLE:
            raise ValueError(
                f"{self.scalars_formula} is {self._most} (P: perturbations, K: local_steps); a report holds at most "
                f"{wire.REPORTABLE} scalars"
            )
        if self.revert == "light" and (derived := self.derivatives):
            raise ValueError(f"revert: light makes no derivatives; estimator: {derived[0]} needs revert: copy")
        if self.has_curvature and self.precision == "sign":
            raise ValueError(
                "precision: sign leaves nothing of a curvature; float32, float16 and bfloat16 are accepted"
            )
        if self.has_curvature and self.directions.is_signs:
            raise ValueError(
                "rademacher directions have u² = 1 and tell H one number; directions: gaussian is accepted"
            )
        if self.arithmetic != "integer" and self.unit_bits is not None:
            raise ValueError(
                f"unit_bits: {self.unit_bits} is for arithmetic: integer; leave it out with {self.arithmetic}"
            )
        if self.arithmetic != "integer" and self.precision == "int32":
            raise ValueError("precision: int32 is for arithmetic: integer; float32, float16 and bfloat16 are accepted")
        if self.revert == "compensate":
            self._refuse_uncompensated()
        _ = self.directions.table, self.grid  # of a plug-in's law: that it can be drawn from, and in whole numbers
        if self.arithmetic == "integer":
            self._refuse_inexact()
        return self

    def _refuse_inexact(self) -> None:
        """Raise ValueError unless commits can be whole numbers, and x their sum."""
        reason, rest = exact.why_not(self), self._choices("arithmetic", "integer")
        if reason is None and self.precision == "sign":
            reason = "precision is sign, and a majority of signs is no sum"
            rest += self._choices("precision", "sign", "int32")  # fedkseed does not take int32
        if reason is not None:
            expected = f"; expected {', or '.join(rest)}" if rest else ""
            raise ValueError(f"arithmetic: integer is not possible here: {reason}{expected}")

    def _choices(self, field: str, *refused: str) -> list[str]:
        """Return in a list of one phrase what else a field of this algorithm takes; an empty one if that is nothing."""
        rest = [each for each in get_args(type(self).model_fields[field].annotation) if each not in refused]
        return [f"{field}: {' or '.join(', '.join(rest).rsplit(', ', 1))}"] if rest else []

    def _refuse_uncompensated(self) -> None:
        """Raise ValueError unless equation 10 is the update, up to rounding."""
        if self.arithmetic == "integer":
            reason = "arithmetic: integer makes x anew from exact sums, so nothing drifts"
        elif self.arithmetic == "bfloat16":
            reason = "arithmetic: bfloat16 rounds x to 8 bits after every step, and a perturbation would be lost"
        elif derived := self.derivatives:
            reason = f"estimator: {derived[0]} perturbs nothing"
        else:
            reason = exact.why_not(self) or ""
        if reason:
            raise ValueError(f"revert: compensate is not possible here: {reason}; revert: copy and light are accepted")

    @property
    def grid(self) -> Grid | None:
        """The whole numbers of `arithmetic: integer`; None: float or bfloat16."""
        if self.arithmetic != "integer":
            return None
        return exact.grid_of(self.learning_rate, self.unit_bits, self.directions)

    @property
    def adds_up(self) -> bool:
        """Whether a report holds whole numbers, whose sum is all that the mean needs."""
        return self.precision == "int32"

    @property
    def _format(self) -> Format:
        return WIRE_FORMATS[self.precision]

    @property
    def _commit_format(self) -> Format:
        return self._format if self.grid is None else INT32

    @property
    def has_curvature(self) -> bool:
        """Whether a report holds P second differences after the P slopes of each local step."""
        return str(self.estimator) == "curvature"

    @property
    def derivatives(self) -> list[str]:
        """Those estimators of its rounds that take no finite differences."""
        return [each for each in DERIVATIVES if each in values(self.estimator)]

    @property
    def scalars_formula(self) -> str:
        """The number of a report's scalars, in the papers' letters."""
        return "2·K·P" if self.has_curvature else "K·P"

    @property
    def _per_direction(self) -> int:
        """The scalars of a direction in a report."""
        return 1 + self.has_curvature

    @property
    def _most(self) -> int:
        """The most scalars that a report holds."""
        return max(values(self.local_steps)) * max(values(self.perturbations)) * self._per_direction

    @property
    def _largest_rate(self) -> float:
        return float(np.float32(max(values(self.learning_rate))))

    # -- the private shift of seeds

    def shifted(self, secret: bytes) -> Self:
        """Return the algorithm of followers that share a secret of 16 to 64 bytes, which the server does not have.

        DeComFL, arXiv:2405.15861, Appendix A.3, "Enhanced Privacy through Private Seed Shifting": each seed that comes
        from the server, in a plan or a commit, is replaced by a function of it that only followers can compute. Here
        that is BLAKE2b with the secret as its key, so that the server cannot tell z from other directions.
        """
        own = self.model_copy()
        own._shift = secret
        return own

    def _seed(self, seed: int) -> int:
        """Return the key of directions that a seed from the server stands for."""
        if self._shift is None:
            return seed
        return int.from_bytes(blake2b(seed.to_bytes(8, "little"), digest_size=8, key=self._shift).digest(), "little")

    # -- messages

    def pack_plan(self, plan: ScalarPlan) -> Packed:
        return wire.pack_plan(plan)

    def unpack_plan(self, body: Any, round: int, version: int) -> ScalarPlan:
        plan = wire.unpack_plan(body, round, version)
        return plan if self._shift is None else replace(plan, seed=self._seed(plan.seed))

    def pack_report(self, plan: ScalarPlan, report: Scalars) -> Packed:
        return wire.pack_report(report, self._format)

    def unpack_report(self, body: Any, plan: ScalarPlan) -> Scalars:
        return wire.unpack_report(body, plan, self._format)

    def pack_commits(self, commits: Sequence[ScalarCommit], *, whole: bool = False) -> Packed:
        return wire.pack_commits(commits, self._commit_format)

    def unpack_commits(self, body: Any) -> list[ScalarCommit]:
        commits = wire.unpack_commits(body, self._commit_format)
        if self.grid is not None and any(term.weight != 1 for commit in commits for term in commit.terms):
            raise BadPayload("whole numbers with weights, which they contain already")
        return commits if self._shift is None else [self._with_own_seeds(commit) for commit in commits]

    def _with_own_seeds(self, commit: ScalarCommit) -> ScalarCommit:
        return replace(commit, terms=tuple(replace(term, seed=self._seed(term.seed)) for term in commit.terms))
