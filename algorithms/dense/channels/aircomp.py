"""AirComp: clients transmit at once, the air adds up, and the server hears the mean with noise.

Fang, Yu, Jiang, Shi, Jones, Zhou. "Communication-Efficient Stochastic Zeroth-Order Optimization for Federated
Learning", IEEE TSP 2022, arXiv:2201.09531, §IV, equations 13–17:

    M_t = {i: |h_i| ≥ h_min},   h_i ~ CN(0, 1), drawn anew for every client and round, so |h_i|² is exponential
    client i transmits α_iΔ_i,   α_i = (h_min/h_i)·√(dP/Δ_max),   Δ_max = max over M_t of ‖Δ_i‖²
    the server has y = mean of Δ_i + ñ,   ñ ~ CN(0, σ_w²Δ_max/(|M_t|²·d·P·h_min²)) a coordinate

SNR = P/σ_w². **Ours**: the in-phase half of ñ is what is added, of half that variance; what an algorithm reports
beside its update is another transmission, with norms and noise of its own; M_t is scheduled among the cohort before
anybody is asked, so with `participation.cohort` left out it is drawn from all N, as in the paper, and with a cohort of
m about e^(−h_min²)·m clients take part. |M_t| counts those whose reports came. A round whose M_t is empty, or below the
quorum, makes no commit. All weigh alike, for the air weighs nobody.

Messages, all of them counted: ‖Δ_i‖ goes up within the report, and when the round closes with a commit a PEAK brings
√Δ_max down to all of M_t, whether or not they were heard; 4 bytes each for every vector that is reported, as float32.
**Ours**: in the air Δ_max comes down before the updates go up. Here it comes after, so that a client's answer is one
message that a process in its place can make anew: a round costs the bytes of the exchange, and one trip less than it
would take. h_i is known at both ends, as §IV-B assumes; its feedback is not sent. The air takes one vector's time for
all, whereas updates travel by themselves here, as float32, and are counted so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.channels.contract import Channel
from seedbus.algorithms.dense.draws import derived, uniforms
from seedbus.algorithms.directions import directions


class AirComp(Channel):
    """AirComp (arXiv:2201.09531, §IV): over-the-air sums of those with a good channel, and noise on them."""

    kind: Literal["aircomp"] = "aircomp"
    snr_db: float | None = Field(default=0.0, ge=-200, le=200, description="P/σ_w² in decibels; null: no noise")
    threshold: float = Field(default=0.8, ge=0, le=4, description="h_min, weakest channel that takes part; 0: all do")

    @model_validator(mode="after")
    def _audible(self) -> Self:
        if self.threshold == 0 and self.snr_db is not None:
            raise ValueError("threshold 0 needs snr_db: null, for the weakest channel would take endless power")
        return self

    def reaches(self, seed: int, client: int) -> bool:
        drawn = float(uniforms(derived(seed, "channel", client), "aircomp", 1)[0])
        return -math.log(drawn) >= self.threshold * self.threshold  # |h|²

    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Vector:
        heard = np.zeros(dimension, np.float32)
        if self.snr_db is not None:
            gain = math.sqrt(2 * dimension * 10 ** (self.snr_db / 10)) * self.threshold * len(norms)
            directions("gaussian").fill(heard, seed=derived(seed, "noise"), step=0, perturbation=number)
            heard *= np.float32(max(norms) / gain)
        return heard
