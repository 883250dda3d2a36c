"""ZO-signSGD: every coordinate steps by η, against the sign of its Δ.

Liu, Chen, Chen, Hong. "signSGD via Zeroth-Order Oracle", ICLR 2019, which replaces the gradient of signSGD
(arXiv:1802.04434) by a zeroth-order estimate. DeComFL's paper (arXiv:2405.15861, Appendix A.1) names it as one of the
optimisers that fit its messages:

    Δ = (1/P) Σ_p ḡ[k,p] z(r,k,p),   x ← x − η sign(Δ)

**Ours**: DeComFL's directions. The estimate of Liu et al., (d/μ)(f(x+μv) − f(x)) v, has v uniform on the unit sphere,
so a μ of theirs reaches as far as one here that is √d times smaller. The sign is that of the cohort's Δ; they have one
machine.

The messages are DeComFL's. Only the step differs, in a client's local steps and in every follower's replay. The sign of
0 is 0. A report that missed its round is of no use: a Δ of its own would be another vote of every coordinate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.block import Block, descend


class ZOSignSGD(ScalarOnly):
    """ZO-signSGD (Liu et al. 2019; arXiv:2405.15861, A.1): DeComFL whose step is η in every coordinate."""

    name: Literal["zo-signsgd"] = "zo-signsgd"

    @property
    def facts(self) -> Facts:
        return replace(super().facts, takes_late=False)  # what a late Δ adds to a sum, it does not add to a sign

    def step(self, block: Block, learning_rate: float) -> None:
        descend(block, np.sign(block.delta, out=block.delta), learning_rate)
