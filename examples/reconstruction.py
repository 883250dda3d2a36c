"""What a server learns of a client from its scalars, because it knows their directions; and a private shift of seeds.

    python examples/reconstruction.py

A report is g = ⟨z, ∇f⟩ for each direction z. A server that knows the seeds solves these equations for ∇f. With the
shift of DeComFL's Appendix A.3 (arXiv:2405.15861) the server's directions are not the client's. Of softmax regression
on a single image the gradient is (p − y)·[image, 1], so the gradient reveals the image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seedbus.agents.seeds import of_directions
from seedbus.algorithms.directions import reference
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.models.partitions.iid import Iid
from seedbus.models.tasks.digits import Digits

ROUNDS, VICTIM, SECRET = (1, 5, 15, 30, 40), 0, b"known to clients only"
CLASSES, PIXELS = 10, 64


def eavesdrop(clients: int, secret: bytes | None) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Return the server's estimate of the gradient [d], the true one at x₀ and the scalars' size, after `ROUNDS`."""
    problem = Digits(model="softmax", batch_size=200).bind(seed=1, clients=clients, partition=Iid())
    server = DeComFL(perturbations=20, learning_rate=1e-3, estimator="central")
    follower = server if secret is None else server.shifted(secret)
    replica, asked, found = follower.replica(problem.x0()), range(3), []
    victim: Any = problem.objective(VICTIM, 0)
    victim.point[:] = problem.x0()
    truth = np.array(victim.gradient(0), np.float64)
    directions, scalars = np.empty((0, problem.dimension)), np.empty(0)
    for round in range(max(ROUNDS)):
        plan = server.plan(round, round, of_directions(1, round))
        received = follower.unpack_plan(server.pack_plan(plan).body, round, round)
        reports = {c: follower.local(replica, None, received, problem.objective(c, round))[0] for c in asked}
        z = np.empty((plan.perturbations, problem.dimension), np.float32)  # as the server believes it to be
        for p, row in enumerate(z):
            reference("gaussian").fill(row, seed=plan.seed, step=0, perturbation=p)
        directions, scalars = np.vstack([directions, z]), np.append(scalars, reports[VICTIM][0])
        if round + 1 in ROUNDS:
            estimate, *_ = np.linalg.lstsq(directions, scalars, rcond=None)
            found.append((estimate, truth, float(np.sqrt(np.mean(scalars**2)))))
        commit, _ = server.aggregate(None, plan, reports)
        follower.apply(replica, follower.unpack_commits(server.pack_commits([commit]).body))
    return found


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(abs(a @ b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def image(gradient: np.ndarray) -> np.ndarray:
    """Return the input of a softmax regression, up to its scale, from its gradient: weights [10, 64], biases [10]."""
    weights, biases = gradient[: CLASSES * PIXELS].reshape(CLASSES, PIXELS), gradient[CLASSES * PIXELS :]
    return np.asarray(biases @ weights)


def main() -> None:
    torch.set_num_threads(1)
    print("cosine with the true gradient of 135 images; and its norm, from the scalars alone")
    print(f"{'rounds':>6}{'seeds known':>14}{'shifted':>10}{'norm, shifted':>16}")
    views = (eavesdrop(10, None), eavesdrop(10, SECRET))
    for rounds, (seen, truth, _), (hidden, _, size) in zip(ROUNDS, *views, strict=True):
        ratio = size / np.linalg.norm(truth)
        print(f"{rounds:>6}{cosine(seen, truth):>14.3f}{cosine(hidden, truth):>10.3f}{ratio:>15.2f}×")
    print("cosine with the only image of a client")
    views = (eavesdrop(1350, None), eavesdrop(1350, SECRET))
    for rounds, (seen, truth, _), (hidden, _, _) in zip(ROUNDS, *views, strict=True):
        print(f"{rounds:>6}{cosine(image(seen), image(truth)):>14.3f}{cosine(image(hidden), image(truth)):>10.3f}")


if __name__ == "__main__":
    main()
