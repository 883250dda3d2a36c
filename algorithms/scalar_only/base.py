"""The scalar-only family: a round sends one seed and K·P gradient scalars, for a model of any dimension.

DeComFL (arXiv:2405.15861, Algorithms 1–4) and the generalised framework of HiSo (arXiv:2506.02370, Algorithm 1):

    client, step k    g[k,p] = (f(x+μz) − f(x))/μ  or  (f(x+μz) − f(x−μz))/2μ,   z = z(seed, k, p), rounded for the wire
                      Δ = Σ_p (g[k,p]/P) z,  x ← x − ηΔ           not on the replica; only g is reported
    server            ḡ = mean of g over the cohort, or a robust rule instead;              rounded for the wire
    follower, each k  Δ = Σ_p (ḡ[k,p]/P) z,  x ← x − ηΔ

With `weight_decay` λ, Δ + λx takes the place of Δ in each x ← x − ηΔ.

Invariant: client and follower share `step`, so there is one definition of an update. Every operation is a separate
float32 operation, in this order, on every backend (seedbus.algorithms.directions). Server, followers and clients,
including the client that measured them, compute with scalars as rounded for the wire
(seedbus.algorithms.scalar_only.precision).

An algorithm of the family is a subclass. It defines which fields a replica has besides x (`companions`), what its
directions are (`directions_of`) and are divided by (`divisor`), how Δ moves x (`step`), and what a follower learns from
Δ (`learn`). If it also defines these as data (`update_rule`), replay is compiled (scalar_only.replay); otherwise NumPy
folds, to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from seedbus.algorithms.aggregation.rules import Mean, checked
from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import (
    BadPayload,
    Declined,
    LateReports,
    Replica,
    ReportRefused,
    Reports,
    Sizes,
    Total,
    Work,
    commits_after,
)
from seedbus.algorithms.directions import Directions, UpdateRule, directions_for, exact_directions_for, for_blocks
from seedbus.algorithms.directions.bfloat16 import BITS, narrowed, widened
from seedbus.algorithms.numbers import ABSURD
from seedbus.algorithms.objective import PASSES, SLOPE_PASSES, Objective
from seedbus.algorithms.scalar_only import exact
from seedbus.algorithms.scalar_only import payloads as wire
from seedbus.algorithms.scalar_only.block import Block, coefficients_of, descend
from seedbus.algorithms.scalar_only.compensation import DRIFTED, drift, follow
from seedbus.algorithms.scalar_only.fields import ScalarFields
from seedbus.algorithms.scalar_only.local import measure
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, ScalarPlan, Scalars, Term
from seedbus.algorithms.scalar_only.perturbed import PERTURBED_MODELS, Copying
from seedbus.algorithms.scalar_only.replay import fused
from seedbus.algorithms.schedule import at
from seedbus.discovery import PluginError
from seedbus.vector import Vector


class ScalarOnly(ScalarFields):
    """The base class of the family: estimation, aggregation and replay."""

    fold_block: ClassVar[int | None] = None
    """Coordinates that are folded at a time; None: as many as directions are drawn for."""
    is_linear: ClassVar[bool] = True
    """Whether a commit moves x by η times what is sent, and not by that over its size."""

    # -- what an algorithm of the family defines

    def companions(self) -> dict[str, float]:
        """Return the fields of a replica besides x, each with the initial value of its coordinates."""
        return {}

    def divisor(self, fields: Mapping[str, Vector], out: Vector) -> Vector | None:
        """Return what divides every direction of a round, or None for isotropic directions.

        Args:
            fields: a replica's fields, or a block of them.
            out: the vector to write the result to.
        """
        return None

    def directions_of(self, source: Directions, round: int) -> Directions:
        """Return the directions of a round, made from the stream's."""
        return source

    def rate(self, learning_rate: float, scalars: Vector) -> float:
        """Return the η of one step along scalars, float32 [P], in local and in global steps; it is rounded to x's type.

        The same bits on every processor: sums are exact (`math.fsum`), and roots are those of `math.sqrt`.
        """
        return learning_rate

    def step(self, block: Block, learning_rate: float) -> None:
        """Compute x ← x − η·Δ, with Δ (with weight decay Δ + λx) in block.delta, in local and in global steps."""
        descend(block, block.delta, learning_rate)

    def learn(self, block: Block, is_last_step: bool) -> None:
        """Update fields that local steps leave alone, such as HiSo's H, by the Δ of one global step."""

    def update_rule(self) -> UpdateRule | None:
        """Return `divisor`, `step` and `learn` as data, for the compiled replay; None if that is not possible."""
        return UpdateRule()

    @property
    def copying(self) -> type[Copying]:
        """How a client measures its losses with `revert: copy`."""
        return Copying

    # -- the contract

    @property
    def facts(self) -> Facts:
        is_own = type(self).aggregate is ScalarOnly.aggregate
        is_whole = self.grid is not None and self.aggregation.rule == "mean"
        signs = "signs of " if self.precision == "sign" else ""
        return replace(
            super().facts,
            takes_late=True,
            is_order_free=is_whole and is_own,
            is_widened=self.revert == "light" and self.arithmetic != "float",
            shares_work=self._works_alike,
            remembers=not (self._works_alike and type(self).local_together is ScalarOnly.local_together),
            is_exact=self.arithmetic == "integer",
            adds_up=self.adds_up and is_own,
            law=self.directions,
            has_round_seeds=True,
            scalars_formula=self.scalars_formula,
            needs_slopes="forward-mode" in self.derivatives,
            reports=f"{signs}slopes of your loss along directions that follow from seeds",
            reveals="the gradient of your samples to all who know the seeds",
        )

    @property
    def is_normalised(self) -> bool:
        """Whether clients divide each scalar by ‖z‖², so that g·z is the gradient's projection onto z."""
        return False

    def replica(self, x0: Vector) -> Replica:
        x: Any = self._kept(x0)
        drifted = {DRIFTED: x0.copy()} if self.revert == "compensate" else {}
        companions = {name: self._filled(x0, name, value) for name, value in self.companions().items()}
        return Replica(0, {"x": x, **drifted, **companions})

    def _filled(self, x0: Vector, name: str, value: Any) -> Vector:
        if not isinstance(value, int | float | np.integer | np.floating):
            raise PluginError(
                f"`companions` of {type(self).__name__} gave {type(value).__name__} for {name}; expected a number, "
                "with which all of its coordinates begin"
            )
        return np.full_like(x0, value)

    def point(self, replica: Replica, newest: Any = None) -> Vector:
        return self.coordinates(replica.x)

    def plan(self, round: int, version: int, seed: int, state: Any = None) -> ScalarPlan:
        steps, scalars = at(self.local_steps, round), at(self.perturbations, round) * self._per_direction
        return ScalarPlan(round, version, seed, steps, scalars, float(np.float32(at(self.learning_rate, round))))

    def unpack_plan(self, body: Any, round: int, version: int) -> ScalarPlan:
        plan = super().unpack_plan(body, round, version)
        if plan != self.plan(round, version, plan.seed):
            raise BadPayload(
                f"a plan of K = {plan.steps}, {plan.perturbations} scalars a step and η = {plan.learning_rate:g}, "
                f"which are not the scenario's for round {round}"
            )
        return plan

    def directions_of_report(self, round: int) -> int:
        """Return along how many directions a report of a round has scalars."""
        return at(self.perturbations, round) * at(self.local_steps, round)

    def work(self, round: int) -> Work:
        perturbations = at(self.perturbations, round)
        per_step = {"forward": perturbations + 1, "central": 2 * perturbations, "projection": PASSES}
        per_step["forward-mode"] = perturbations * SLOPE_PASSES
        per_step["curvature"] = per_step["central"] + 1
        evaluations = at(self.local_steps, round) * per_step[at(self.estimator, round)]
        return Work(evaluations, self.directions_of_report(round) * self._per_direction)

    def local(self, replica: Replica, memory: Any, plan: ScalarPlan, objective: Objective) -> tuple[Scalars, Any]:
        """Run K local steps from the replica; return the scalars, float32 [K, P], rounded for the wire, and memory.

        A subclass that overrides it is asked for the work of one client after the other.
        """
        (result,) = self._together(replica, [memory], plan, [objective])
        if isinstance(result, Declined):
            raise result
        return result

    def trained(self, replica: Replica, memory: Any, plan: ScalarPlan, objective: Objective) -> Vector:
        source = self.directions_of(self._source(replica, plan, objective), plan.round)
        start = self.copying(self, source, replica, plan)
        (scalars,) = measure(self, start, plan, [objective])
        if isinstance(scalars, Declined):
            raise scalars
        model = start.fork()
        for of_step in scalars:
            model.advance(of_step)
        return model.point

    def _committed(self, replica: Replica, plan: ScalarPlan, scalars: Scalars, learning_rate: float) -> Vector:
        """Return the model that a commit of one client's scalars would make."""
        own, term = replica.copy(), Term(plan.round, plan.seed, scalars)
        self.apply(own, [ScalarCommit(own.version + 1, plan.round, learning_rate, (term,))])
        return self.point(own)

    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        """Return what a client reports of the P scalars of one local step, for instance their signs.

        The client's own next step starts from what it reports, as everybody's replay of it does. The values are rounded
        for the wire afterwards. A client whose infinity or NaN was made a finite number here declines.
        """
        return scalars

    def local_together(
        self, replica: Replica, memories: Sequence[Any], plan: ScalarPlan, objectives: Sequence[Objective]
    ) -> list[tuple[Any, Any] | Declined]:
        if not self._works_alike:
            return super().local_together(replica, memories, plan, objectives)
        return self._together(replica, memories, plan, objectives)

    @property
    def _works_alike(self) -> bool:
        """Whether clients work as those of the family do, and not in a way of a plug-in."""
        return type(self).local is ScalarOnly.local

    def _together(
        self, replica: Replica, memories: Sequence[Any], plan: ScalarPlan, objectives: Sequence[Objective]
    ) -> list[tuple[Any, Any] | Declined]:
        """Run the local steps of several clients, each of whose mini-batches has a forward pass of its own.

        With `revert: copy` each perturbed point of the first step is computed once, for the losses of all clients.
        """
        reports = self._measure(replica, plan, objectives)
        if self.grid is not None and self.adds_up:
            reports = [exact.own_numbers(self.grid, plan.learning_rate, report) for report in reports]
        elif self.grid is not None:
            reports = [exact.sendable(self.grid, self._largest_rate, report) for report in reports]
        return [
            report if isinstance(report, Declined) else (report, memory)
            for report, memory in zip(reports, memories, strict=True)
        ]

    def _measure(self, replica: Replica, plan: ScalarPlan, objectives: Sequence[Objective]) -> list[Scalars | Declined]:
        """Return each client's scalars as rounded for the wire, float32 [K, P], or why it declines."""
        source = self.directions_of(self._backend(replica.x), plan.round)
        kind = self.copying if self.revert == "copy" else PERTURBED_MODELS[self.revert]
        start = kind(self, source, replica, plan)
        return measure(self, start, plan, objectives)

    def check(self, plan: ScalarPlan, report: Scalars) -> None:
        if report.shape != plan.shape:
            raise ReportRefused("shape", f"its scalars have shape {report.shape}, not K × P = {plan.shape}")
        if self.adds_up:
            return
        if self.grid is None and float(np.vdot(report, report)) <= ABSURD:
            return  # a sum of squares, so each is finite and far smaller: nearly all reports, at a fifth of the cost
        largest = float(np.abs(report).max())
        if not math.isfinite(largest):
            raise ReportRefused("not-finite", "it holds a scalar that is not a finite number")
        if largest > ABSURD:
            raise ReportRefused(
                "absurd", f"it holds a scalar of magnitude {largest:.3g}; at most {ABSURD:.0g} is accepted"
            )
        if self.grid is not None:
            try:
                self.grid.numbers(report, self._largest_rate)
            except OverflowError as error:
                raise ReportRefused("absurd", str(error)) from None

    def read_reports(self, bodies: Sequence[Any], plan: ScalarPlan) -> list[Any]:
        """Read those that are short and sound together, and each of the others alone."""
        is_own = type(self).unpack_report is ScalarFields.unpack_report and type(self).check is ScalarOnly.check
        if self.grid is not None or not is_own:
            return super().read_reports(bodies, plan)
        together = wire.unpack_reports(bodies, plan, self._format, ABSURD)
        return [
            self._read(body, plan) if report is None else report for body, report in zip(bodies, together, strict=True)
        ]

    def check_state(self, state: Any) -> None:
        if type(self).aggregate is not ScalarOnly.aggregate:
            return  # a plug-in's state has its own form
        if self.grid is None:
            self.aggregation.check_state(state)
        elif state is not None:
            exact.check_state(self.aggregation, state)

    def aggregate(
        self,
        state: Any,
        plan: ScalarPlan,
        reports: Reports,
        *,
        share: float = 1.0,
        late: Sequence[LateReports] = (),
        members: int = 0,
    ) -> tuple[ScalarCommit, Any]:
        """Return the commit of ḡ: the cohort's scalars in client order, combined in float64 and rounded for the wire.

        Each late round becomes a term of its own: for n reports, Σ_i w·Δ(g_i) is Δ(mean g) with the weight n·w. Its
        scalars were measured along steps of its own η; the term's weight has η of that round over η of this one.

        Raises:
            OverflowError: with `arithmetic: integer`, the sums of all commits might overflow.
        """
        if self.grid is not None:
            return exact.aggregate(
                self.grid, self.aggregation, state, plan, reports, share, late, is_whole=self.adds_up
            )
        if reports is None or isinstance(reports, Total):
            raise RuntimeError("scalars neither add up nor count alone; see `facts`")
        own = Term(plan.round, plan.seed, self._format.rounded(np.zeros((1, 1))), 0.0)
        if reports:
            found = self.aggregation.combine(wire.rows(reports), state)
            combined, state = checked(self.aggregation, "combine", found, plan.steps * plan.perturbations)
            scalars = self._format.rounded(combined).reshape(plan.shape)
            own = Term(plan.round, plan.seed, scalars, float(np.float32(share)))
        terms = [own]
        for group in late:
            mean = self._format.rounded(Mean().combine(wire.rows(group.reports), None)[0]).reshape(group.plan.shape)
            older = group.plan.learning_rate / plan.learning_rate
            weight = float(np.float32(group.weight * len(group.reports) * older))
            terms.append(Term(group.plan.round, group.plan.seed, mean, weight))
        return ScalarCommit(plan.version + 1, plan.round, plan.learning_rate, tuple(terms)), state

    def example(self, plan: ScalarPlan) -> Any:
        """Return a report whose commit takes as long to fold as any, to measure that."""
        return np.zeros(plan.shape, np.float32)

    def numbers(self, report: Any) -> Any:
        """Return a report, which is its numbers, int32 [K, P]."""
        return report

    def of_numbers(self, plan: ScalarPlan, numbers: Any) -> Any:
        """Return the report with these numbers, int32 [K, P]."""
        return np.full(plan.shape, numbers, np.int32)

    def values(self, report: Scalars) -> Scalars:
        return report.astype(np.float32) if self.adds_up else report

    def with_values(self, report: Scalars, values: Vector) -> Any:
        if self.adds_up:
            largest = float(exact.MOST_NUMBER)
            return exact.nearest(np.clip(np.nan_to_num(values.astype(np.float64)), -largest, largest))
        return values.astype(np.float32, copy=False)

    def apply(self, replica: Replica, commits: Sequence[ScalarCommit]) -> None:
        """Fold commits, fused: each block of coordinates folds them all, so x, H and m are read and written once."""
        pending = commits_after(replica.version, commits)
        if not pending:
            return
        backend = self._backend(replica.x)
        if self.grid is not None:
            exact.add(replica.fields["x"], backend, pending)
            replica.version = pending[-1].version
            return

        def fold(span: slice) -> None:
            block = Block(replica.fields, span)
            with np.errstate(over="ignore", invalid="ignore"):  # a diverging run overflows to inf, equally everywhere
                for commit in pending:
                    for term in commit.terms:
                        self._fold(block, backend, commit, term)
            block.store()

        work = fused(self, backend, replica, pending) or fold
        blocks = {} if self.fold_block is None else {"block": self.fold_block}
        for_blocks(replica.dimension, work, like=replica.x, **blocks)
        if self.revert == "compensate":
            follow(self, backend, replica, pending)
        replica.version = pending[-1].version

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        return drift(replica) if self.revert == "compensate" else {}

    def sizes(self, dimension: int, clients: int) -> Sizes:
        return Sizes()

    # -- the mathematics

    def coordinates(self, x: Any) -> Vector:
        """Return the coordinates that a replica's x, or a span of it, stands for; not to be written to."""
        return widened(x) if self.grid is None else self.grid.coordinates(x)

    def _kept(self, x0: Vector) -> Any:
        """Return x₀ as a replica keeps it, a copy."""
        if self.grid is not None:
            return self.grid.fixed(x0)
        if self.arithmetic == "float":
            return x0.copy()
        x = np.empty_like(x0, dtype=BITS)

        def narrow(span: slice) -> None:
            x[span] = narrowed(x0[span])

        for_blocks(x0.size, narrow, like=x0)
        return x

    def move(
        self, block: Block, source: Any, divisor: Vector | None, plan: ScalarPlan, k: int, scalars: Scalars
    ) -> None:
        """Take a local step: x ← x − η·Σ_p (g[p]/P) z(k, p).

        Args:
            block: the block, whose fields are written to.
            source: the directions, exact ones with `arithmetic: integer`.
            divisor: what divides the directions in the block, or None.
            plan: the client's plan.
            k: the local step.
            scalars: its gradient scalars, float32 [P].

        Raises:
            Declined: with `arithmetic: integer`, a step is too large.
        """
        if self.grid is not None:
            terms = exact.local_terms(self.grid, plan, k, scalars)
            source.add_terms(block.fields["x"], terms, start=block.start)
            return
        coefficients = coefficients_of(scalars, 1.0, block.delta.dtype.type)
        source.accumulate(block.delta, coefficients, divisor=divisor, seed=plan.seed, step=k, start=block.start)
        with np.errstate(over="ignore", invalid="ignore"):  # here, as other threads do not inherit it
            self._step(block, self.rate(plan.learning_rate, scalars))

    def _step(self, block: Block, learning_rate: float) -> None:
        """Take the algorithm's step along Δ + λx; what it does to block.delta, it then does to that sum."""
        delta, x = block.delta, block.fields["x"]
        if self.weight_decay:
            block.delta = np.add(delta, np.multiply(x, x.dtype.type(self.weight_decay)))
        self.step(block, learning_rate)
        if self.weight_decay:
            block.delta = delta
        block.round()

    def _backend(self, x: Any) -> Any:
        """Return the directions for a replica's x: `Directions`, or `ExactDirections` if it holds sums."""
        if self.grid is not None:
            return exact_directions_for(self.directions, x)
        return directions_for(self.directions, x)

    def _source(self, replica: Replica, plan: ScalarPlan, objective: Any) -> Any:
        """Return the directions of one client's local steps, like `_backend`."""
        return self._backend(replica.x)

    def _fold(self, block: Block, backend: Directions, commit: ScalarCommit, term: Term) -> None:
        if not term.weight:
            return
        is_own, weight, rate = commit.effect(term)
        backend = self.directions_of(backend, term.round)
        sqrt_hessian = self.divisor(block.fields, block.sqrt_hessian)
        for k, weights in enumerate(coefficients_of(term.scalars, weight, block.delta.dtype.type)):
            backend.accumulate(block.delta, weights, seed=term.seed, step=k, start=block.start, divisor=sqrt_hessian)
            if is_own:
                self._step(block, self.rate(rate, term.scalars[k]))
                self.learn(block, k + 1 == len(term.scalars))
            else:
                descend(block, block.delta, rate)
                block.round()
