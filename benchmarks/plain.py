"""The baseline: zeroth-order federated learning as public code writes it, in plain torch, on one core.

One Python loop over the clients; each direction is `torch.randn` of the whole model from a generator that is reseeded
for it; a client perturbs its model in place, takes one forward pass, and restores it; one that missed rounds makes up
for them commit after commit, perturbation after perturbation. Momentum and Hessian are whole-vector operations. It is
plain, not slow on purpose: parameters are views of one flat vector, so nothing is copied and no loop runs over layers.

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
    """Hyperparameters. momentum 0: none; nu None: DeComFL, else HiSo; directions: normal, or ±1 where is_signs."""

    learning_rate: float = 1e-3
    smoothing: float = 1e-3
    momentum: float = 0.0
    nu: float | None = None
    epsilon: float = 1e-8
    is_signs: bool = False


@dataclass(frozen=True)
class Commit:
    """What a round leaves behind: its seed and the mean gradient scalars, [K][P]."""

    seed: int
    scalars: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Batch:
    """Images [b, channels, height, width] and their labels [b]."""

    images: Tensor
    labels: Tensor


class Follower:
    """One client: x, shape [d], and beside it m or H. version: how many commits it has folded."""

    def __init__(self, x: Tensor, recipe: Recipe) -> None:
        self.x, self.recipe, self.version = x.clone(), recipe, 0
        self.m = torch.zeros_like(x) if recipe.momentum else None
        self.hessian = None if recipe.nu is None else torch.ones_like(x)
        self._generator = torch.Generator()

    def direction(self, seed: int, step: int, perturbation: int) -> Tensor:
        """A fresh vector of shape [d]."""
        self._generator.manual_seed(hash((seed, step, perturbation)) & 0xFFFF_FFFF)
        if self.recipe.is_signs:
            return torch.empty_like(self.x).bernoulli_(0.5, generator=self._generator).mul_(2).sub_(1)
        return torch.randn(self.x.numel(), generator=self._generator)

    def catch_up(self, log: Sequence[Commit]) -> None:
        """Fold what it missed."""
        for commit in log[self.version :]:
            root = None if self.hessian is None else self.hessian.sqrt()
            for step, scalars in enumerate(commit.scalars):
                self._advance(commit.seed, step, scalars, root)
        self.version = len(log)

    def local(self, network: nn.Module, seed: int, batches: Sequence[Batch], perturbations: int) -> list[list[float]]:
        """One local step a batch, by forward differences; returns the scalars [K][P] and leaves the follower as it was.

        network: its parameters must be views of this follower's x (`borrow`).
        """
        kept = [None if vector is None else vector.clone() for vector in (self.x, self.m, self.hessian)]
        root = None if self.hessian is None else self.hessian.sqrt()
        scalars = []
        for step, batch in enumerate(batches):
            here = loss(network, batch)
            scalars.append([self._slope(network, batch, here, seed, step, p, root) for p in range(perturbations)])
            self._advance(seed, step, scalars[-1], root)
        for vector, before in zip((self.x, self.m, self.hessian), kept, strict=True):
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
        """x after one step; without m and H each perturbation goes straight into x."""
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
    """One round, client after client: each catches up, then measures on its own batches; the mean joins the log."""
    reports = []
    for client, batches in cohort.items():
        follower = followers[client]
        follower.catch_up(log)
        borrow(network, follower.x)
        reports.append(follower.local(network, seed, batches, perturbations))
    mean = torch.tensor(reports, dtype=torch.float64).mean(dim=0)
    log.append(Commit(seed, mean.tolist()))


def flat(network: nn.Module) -> Tensor:
    """A copy of a network's parameters as one vector."""
    return nn.utils.parameters_to_vector(network.parameters()).detach().clone()


def borrow(network: nn.Module, x: Tensor) -> None:
    """Make the network's parameters views of x."""
    at = 0
    for parameter in network.parameters():
        parameter.data = x[at : at + parameter.numel()].view_as(parameter)
        at += parameter.numel()


@torch.inference_mode()
def loss(network: nn.Module, batch: Batch) -> float:
    return float(cross_entropy(network(batch.images), batch.labels))
