"""What a run did not achieve, in sentences: no commit at all, or a model that is worse than the one it began with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seedbus.agents.server.stopping import rounds_done


def shortcomings(
    lines: Sequence[Mapping[str, Any]], version: int, rising: Sequence[str], metric: str | None = None
) -> list[str]:
    """Return a sentence for each shortcoming of a run.

    Args:
        lines: its evaluations, oldest first.
        version: the newest version of its model.
        rising: the metrics of which larger values are better.
        metric: the metric by which its first and its last evaluation are compared; None: the first of `rising` that
            it measures, or the loss.
    """
    if len(lines) < 2:
        return []
    if not version:
        return ["no round made a commit: the model is the one that the run began with"]
    name = metric or next((name for name in (*rising, "loss") if name in lines[0]), "")
    first, last = (_number(lines[index].get(name)) for index in (0, -1))
    if rounds_done(lines[0], is_first=True) or not math.isfinite(first):
        return []
    if math.isfinite(last) and (last >= first if name in rising else last <= first):
        return []
    return [f"the model ended worse than it began: {name} {_written(last)}, before the first round {_written(first)}"]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _written(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "not a finite number"
