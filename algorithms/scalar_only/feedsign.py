"""FeedSign: federated zeroth-order fine-tuning whose clients send one bit for each direction, and the server one back.

Cai, Chen, Zhu. "FeedSign: Robust Full-parameter Federated Fine-tuning of Large Models with Extremely Low Communication
Overhead of One Bit", arXiv:2501.17610.

    client, step k    s[k,p] = sign of (f(x+μz) − f(x−μz)) / 2μ                    a bit
    server            S[k,p] = the sign that most of the cohort sent               a bit
    follower          x ← x − (η/P) Σ_p S[k,p] z(r,k,p)

The format of scalars (`precision: sign`) makes all of it: a rounded scalar is a sign, and a rounded mean of signs is
the majority's. The other algorithms of the family accept that format as well.

**Ours**: P directions and K local steps, each step along the client's own signs (the paper: one of each). In a tie, and
of a difference of 0, the sign is +1: a commit stays one bit, and z and −z are equally likely. A seed travels as for
DeComFL. Late reports of one round enter a commit as their majority, with the sum of their weights. A difference that is
infinite or NaN has no sign, so the client declines with the reason `overflow`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.fields import Count, Estimator
from seedbus.algorithms.schedule import Scheduled


class FeedSign(ScalarOnly):
    """FeedSign (arXiv:2501.17610): clients report the sign of each scalar, and a commit holds the majority's signs."""

    name: Literal["feedsign"] = "feedsign"
    precision: Literal["sign"] = Field(default="sign", description="a bit a scalar, in reports and in commits")
    perturbations: Scheduled[Count] = Field(default=1, description="P, directions per local step; may change by round")
    estimator: Scheduled[Estimator] = Field(
        default="central", description="as for DeComFL; the paper's is central; may change by round"
    )
