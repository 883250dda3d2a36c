"""The baseline: zeroth-order federated learning as in public code, in plain torch, on one core or one GPU.

A Python loop runs over the clients. Each direction is `torch.randn` of the whole model, from a generator that is
reseeded for it. A client perturbs its model in place, takes one forward pass, and restores it. A client that has missed
rounds replays them commit by commit and perturbation by perturbation. Momentum and Hessian are whole-vector operations.
The code is plain, but not slow on purpose: parameters are views of one flat vector, so nothing is copied and no loop
runs over layers.

DeComFL: Li et al., arXiv:2405.15861; HiSo: arXiv:2506.02370 (the equations are in `seedbus.algorithms`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters.

    Attributes:
        learning_rate: η.
        smoothing: μ.
        momentum: 0: none.
        nu: weight of HiSo's Hessian update; None: DeComFL.
        epsilon: added to the Hessian update.
        is_signs: whether directions are ±1; otherwise they are normal.
    """

    learning_rate: float = 1e-3
    smoothing: float = 1e-3
    momentum: float = 0.0
    nu: float | None = None
    epsilon: float = 1e-8
    is_signs: bool = False


@dataclass(frozen=True)
class Commit:
    """A round's entry in the log: its seed and the mean gradient scalars, [K][P]."""

    seed: int
    scalars: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Batch:
    """Images [b, channels, height, width] and their labels [b]."""

    images: Tensor
    labels: Tensor


class Follower:
    """One client.

    Attributes:
        x: the model [d].
        m: momentum [d]; None: none.
        hessian: diagonal Hessian estimate H [d]; None: none.
        recipe: hyperparameters.
        version: number of commits that it has folded.
    """

    def __init__(self, x: Tensor, recipe: Recipe) -> None:
        self.x = x.clone()
        self.recipe = recipe
        self.version = 0
        self.m = torch.zeros_like(x) if recipe.momentum else None
        self.hessian = None if recipe.nu is None else torch.ones_like(x)
        self._generator = torch.Generator(x.device)

    def direction(self, seed: int, step: int, perturbation: int) -> Tensor:
        """Draw a direction, a new vector [d]."""
        self._generator.manual_seed(hash((seed, step, perturbation)) & 0xFFFF_FFFF)
        if self.recipe.is_signs:
            return torch.empty_like(self.x).bernoulli_(0.5, generator=self._generator).mul_(2).sub_(1)
        return torch.randn(self.x.numel(), generator=self._generator, device=self.x.device)

    def catch_up(self, log: Sequence[Commit]) -> None:
        """Fold the commits that it has missed."""
        for commit in log[self.version :]:
            root = None if self.hessian is None else self.hessian.sqrt()
            for step, scalars in enumerate(commit.scalars):
                self._advance(commit.seed, step, scalars, root)
        self.version = len(log)

    def local(self, network: nn.Module, seed: int, batches: Sequence[Batch], perturbations: int) -> list[list[float]]:
        """Take one local step per batch by forward differences, then restore the follower; return the scalars [K][P].

        Args:
            network: its parameters must be views of this follower's x (`borrow`).
            seed: the round's seed.
            batches: one per local step, K.
            perturbations: per step, P.
        """
        saved = [None if vector is None else vector.clone() for vector in (self.x, self.m, self.hessian)]
        root = None if self.hessian is None else self.hessian.sqrt()
        scalars = []
        for step, batch in enumerate(batches):
            here = loss(network, batch)
            scalars.append([self._slope(network, batch, here, seed, step, p, root) for p in range(perturbations)])
            self._advance(seed, step, scalars[-1], root)
        for vector, before in zip((self.x, self.m, self.hessian), saved, strict=True):
            if vector is not None and before is not None:
                vector.copy_(before)
        return scalars

    def _slope(
        self,
        network: nn.Module,
        batch: Batch,
        here: float,
        seed: int,
        step: int,
        perturbation: int,
        root: Tensor | None,
    ) -> float:
        """(f(x + μz) − f(x)) / μ, perturbing x in place."""
        z, smoothing = self.direction(seed, step, perturbation), self.recipe.smoothing
        if root is not None:
            z.div_(root)
        self.x.add_(z, alpha=smoothing)
        there = loss(network, batch)
        self.x.sub_(z, alpha=smoothing)
        return (there - here) / smoothing

    def _advance(self, seed: int, step: int, scalars: Sequence[float], root: Tensor | None) -> None:
        """Move x by one step; without m and H each perturbation is added to x directly."""
        rate, share = self.recipe.learning_rate, 1 / len(scalars)
        if self.m is None and self.hessian is None:
            for p, scalar in enumerate(scalars):
                self.x.add_(self.direction(seed, step, p), alpha=-rate * scalar * share)
            return
        delta = torch.zeros_like(self.x)
        for p, scalar in enumerate(scalars):
            z = self.direction(seed, step, p)
            delta.add_(z if root is None else z.div_(root), alpha=scalar * share)
        if self.m is not None:
            self.m.mul_(self.recipe.momentum).add_(delta, alpha=1 - self.recipe.momentum)
        self.x.add_(delta if self.m is None else self.m, alpha=-rate)
        if self.hessian is not None and self.recipe.nu is not None:
            self.hessian.mul_(1 - self.recipe.nu).add_(delta.square_().add_(self.recipe.epsilon), alpha=self.recipe.nu)


def federated_round(
    network: nn.Module,
    followers: Sequence[Follower],
    cohort: Mapping[int, Sequence[Batch]],
    log: list[Commit],
    seed: int,
    perturbations: int,
) -> None:
    """Run one round, client by client: each catches up and evaluates its own batches. The mean is added to the log."""
    reports = []
    for client, batches in cohort.items():
        follower = followers[client]
        follower.catch_up(log)
        borrow(network, follower.x)
        reports.append(follower.local(network, seed, batches, perturbations))
    mean = torch.tensor(reports, dtype=torch.float64).mean(dim=0)
    log.append(Commit(seed, mean.tolist()))


def flat(network: nn.Module) -> Tensor:
    """Return a copy of a network's parameters as one vector [d]."""
    return nn.utils.parameters_to_vector(network.parameters()).detach().clone()


def borrow(network: nn.Module, x: Tensor) -> None:
    """Make the network's parameters views of x."""
    offset = 0
    for parameter in network.parameters():
        parameter.data = x[offset : offset + parameter.numel()].view_as(parameter)
        offset += parameter.numel()


@torch.inference_mode()
def loss(network: nn.Module, batch: Batch) -> float:
    return float(cross_entropy(network(batch.images), batch.labels))
