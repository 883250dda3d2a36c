from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from seedbus.plugin import BadPayload, LateReports, Packed, Replica, ReportRefused, ScalarOnly, Work


class Anchored(ScalarOnly):
    """DeComFL whose clients measure each direction twice: at x, and at an anchor of their own that follows x."""

    name: Literal["anchored"] = "anchored"
    beta: float = Field(default=0.2, ge=0, lt=1, description="weight of the slopes at the anchor")

    def local(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> tuple[Any, Any]:
        anchor = replica.x if memory is None else np.frombuffer(memory, np.float32)
        here, _ = super().local(replica, None, plan, objective)
        there, _ = super().local(Replica(replica.version, {"x": anchor}), None, plan, objective)
        kept = np.float32(0.9) * anchor + np.float32(0.1) * replica.x
        return np.concatenate([here, there], axis=1), kept.tobytes()

    def work(self, round: int) -> Work:
        return Work(*(2 * each for each in super().work(round)))  # passes, and scalars

    def check(self, plan: Any, report: Any) -> None:
        if report.shape != (plan.steps, 2 * plan.perturbations):
            raise ReportRefused("shape", f"it has the shape {report.shape}")
        for half in np.split(report, 2, axis=1):
            super().check(plan, half)

    def aggregate(self, state: Any, plan: Any, reports: Mapping[int, Any], *, late: Any = (), **others: Any) -> Any:
        late = [LateReports(each.plan, self.combined(each.reports), each.weight) for each in late]
        return super().aggregate(state, plan, self.combined(reports), late=late, **others)

    def example(self, plan: Any) -> Any:
        return np.zeros((plan.steps, 2 * plan.perturbations), np.float32)

    def combined(self, reports: Mapping[int, Any]) -> dict[int, Any]:
        halves = {client: np.split(report, 2, axis=1) for client, report in reports.items()}
        return {client: here - np.float32(self.beta) * there for client, (here, there) in halves.items()}

    def pack_report(self, plan: Any, report: Any) -> Packed:
        return Packed([report.astype("<f4").tobytes()], scalars=report.size)

    def unpack_report(self, body: Any, plan: Any) -> Any:
        size = 8 * plan.steps * plan.perturbations
        if not (isinstance(body, list) and len(body) == 1 and isinstance(body[0], bytes) and len(body[0]) == size):
            raise BadPayload(f"a report is not {size} bytes")
        return np.frombuffer(body[0], "<f4").reshape(plan.steps, -1)
