"""MIFA: the server keeps each client's last update, which stands in for the client while it is away.

Memory-augmented Impatient Federated Averaging: Gu, Huang, Zhang, Huang, NeurIPS 2021, arXiv:2106.04159, and the
authors' code (github.com/hmgxr128/MIFA_code):

    server   G_i ← −Δ_i/η_t for each client i that reports, else G_i stays;   w ← w − η_t·(1/N) Σ_i G_i

The code has two forms: one waits until every client has been available once and then measures all G_i, the other
begins with G_i = 0. Here the mean is that of the clients that have reported so far, since nobody knows who will ever
come; once each of N has reported, it is the paper's. A late report is its client's last one too, unless the client's
report of a later round has come before it. Clients count equally.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from seedbus.algorithms.dense.methods.method import Method, Server

_LAST = "mifa.g/"  # then the client's number, and the round of its last update in ten digits


class MIFA(Method):
    """MIFA (arXiv:2106.04159): a client that is away counts with its last update, which the server keeps."""

    defaults: ClassVar = {"weighting": "uniform"}
    needs: ClassVar[dict[str, Any]] = {"weighting": "uniform"}
    uses_reports: ClassVar[bool] = True

    name: Literal["mifa"] = "mifa"

    def kept_vectors(self, clients: int) -> int:
        return clients

    def move(self, server: Server) -> bool:
        kept = {name.rpartition("/")[0]: name for name in server.state if name.startswith(_LAST)}
        for report in server.reports:
            client = f"{_LAST}{report.client}"
            name, before = f"{client}/{report.plan.round:010}", kept.get(client, "")
            if name > before:  # messages may overtake each other: a client's newest update stays
                server.state.pop(before, None)
                server.state[name] = report.update / np.float32(report.plan.learning_rate)
                kept[client] = name
        last = [server.state[name] for name in sorted(server.state) if name.startswith(_LAST)]
        total = np.zeros(server.x.size)
        for vector in last:
            total += vector
        rate = server.plan.server_learning_rate * server.plan.learning_rate
        server.x += np.float32(rate) * (total / max(1, len(last))).astype(np.float32)
        return True
