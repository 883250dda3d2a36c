"""AirComp: clients transmit at once, their signals add up, and the server receives the mean with noise.

Fang, Yu, Jiang, Shi, Jones, Zhou. "Communication-Efficient Stochastic Zeroth-Order Optimization for Federated
Learning", IEEE TSP 2022, arXiv:2201.09531, §IV, equations 13–17:

    M_t = {i: |h_i| ≥ h_min},   h_i ~ CN(0, 1), drawn for each client and round, so |h_i|² is exponential
    client i transmits α_iΔ_i,   α_i = (h_min/h_i)·√(dP/Δ_max),   Δ_max = max over M_t of ‖Δ_i‖²
    the server receives y = mean of Δ_i + ñ,   ñ ~ CN(0, σ_w²Δ_max/(|M_t|²·d·P·h_min²)) a coordinate

SNR = P/σ_w². **Ours**: only the in-phase half of ñ is added, which has half that variance; each vector that an
algorithm reports beside its update is a transmission of its own, with its own norms and noise; M_t is chosen within the
cohort before plans are sent, so without `participation.cohort` it is drawn from all N, as in the paper, and with a
cohort of m about e^(−h_min²)·m clients take part. |M_t| counts the clients whose reports arrived. A round whose M_t is
empty, or below the quorum, makes no commit. All clients weigh equally, because the channel sums without weights.

All messages are counted: the report contains ‖Δ_i‖, and when the round closes with a commit, a PEAK message brings
√Δ_max to all of M_t, whether or not their reports arrived; each takes 4 bytes a reported vector, as float32. **Ours**:
over the air, Δ_max is sent down before the updates are sent up. Here it is sent afterwards, so that a client's answer
is a single message, which a replacement process can repeat: a round costs the bytes of the exchange, and one trip less
than it would take. h_i is known at both ends, as §IV-B assumes; its feedback is not sent. Over the air all updates
together take the time of one vector; here each is sent as float32 by itself, and counted so.
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
    """AirComp (arXiv:2201.09531, §IV): over-the-air sums of the clients with a good channel, with noise."""

    kind: Literal["aircomp"] = "aircomp"
    snr_db: float | None = Field(default=0.0, ge=-200, le=200, description="P/σ_w² in decibels; null: no noise")
    threshold: float = Field(default=0.8, ge=0, le=4, description="h_min, weakest channel that takes part; 0: all")

    @model_validator(mode="after")
    def _check_threshold(self) -> Self:
        if self.threshold == 0 and self.snr_db is not None:
            raise ValueError("threshold 0 needs snr_db: null, because the weakest channel would need unlimited power")
        return self

    def reaches(self, seed: int, client: int) -> bool:
        drawn = float(uniforms(derived(seed, "channel", client), "aircomp", 1)[0])
        return -math.log(drawn) >= self.threshold * self.threshold  # |h|²

    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Vector:
        noise = np.zeros(dimension, np.float32)
        if self.snr_db is not None:
            gain = math.sqrt(2 * dimension * 10 ** (self.snr_db / 10)) * self.threshold * len(norms)
            directions("gaussian").fill(noise, seed=derived(seed, "noise"), step=0, perturbation=number)
            noise *= np.float32(max(norms) / gain)
        return noise
