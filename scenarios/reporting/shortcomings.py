"""What a run did not achieve, in sentences: no commit, training that fell apart, or a model worse than its first one.

Training fell apart if the last model has lost more than half of what the best one had gained on the model before the
first round, and the loss is no matter of chance: by 20 points of a share of samples; by a quarter of the best value of
another metric of which larger values are better; by a tenth of the first value of one of which smaller values are
better, such as the loss. Perplexities are compared by their logarithms. Whatever another metric says, it fell apart if
the loss at the end is ten times the one before the first round. **Ours**: no source has such a rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seedbus.agents.server.stopping import all_rounds_done, rounds_done
from seedbus.scenarios.reporting.axes import is_share

LARGE_LOSS = 10.0
"""A loss so many times the first one is that of no model that has learnt anything."""


def shortcomings(
    lines: Sequence[Mapping[str, Any]], version: int, rising: Sequence[str], metric: str | None = None
) -> list[str]:
    """Return a sentence for each shortcoming of a run.

    Args:
        lines: its evaluations, oldest first.
        version: the newest version of its model.
        rising: the metrics of which larger values are better.
        metric: the metric by which evaluations are compared; None: the first of `rising` that it measures, or the loss.
    """
    if len(lines) < 2:
        return []
    if not version:
        return ["no round made a commit: the model is the one that the run began with"]
    name = metric or next((name for name in (*rising, "loss") if name in lines[0]), "")
    first, last = (_number(lines[index].get(name)) for index in (0, -1))
    if rounds_done(lines[0], is_first=True) or not math.isfinite(first):
        return []
    said = []
    if _fell_apart(values := [_number(line.get(name)) for line in lines], name, name in rising):
        said.append(_fall(lines, name, values, name in rising))
    elif name != "loss" and "loss" in lines[0]:
        losses = [_number(line.get("loss")) for line in lines]
        if 0 < LARGE_LOSS * losses[0] <= losses[-1] < math.inf:
            said.append(_fall(lines, "loss", losses, False))
    if math.isfinite(last) and (last >= first if name in rising else last <= first):
        return said
    worse = f"the model ended worse than it began: {name} {_written(last)}, before the first round {_written(first)}"
    return [*said, worse]


def _fell_apart(values: Sequence[float], name: str, is_rising: bool) -> bool:
    """Whether the last of these values shows that training fell apart; one that is not finite shows more than that."""
    if not math.isfinite(values[-1]):
        return False
    if name == "perplexity":
        values = [math.log(value) if value > 0 else math.nan for value in values]
    first, last, best = values[0], values[-1], _best(values, is_rising)
    least = 0.2 if is_share(name) else 0.25 * abs(best) if is_rising else 0.1 * abs(first)
    return best != first and abs(last - best) > abs(best - first) / 2 and abs(last - best) >= least


def _fall(lines: Sequence[Mapping[str, Any]], name: str, values: Sequence[float], is_rising: bool) -> str:
    best = _best(values, is_rising)
    after = all_rounds_done(lines)[values.index(best)]
    when = f"after round {after:,}" if after else "before the first round"
    return f"training fell apart: {name} {_written(values[-1])} at the end, and {_written(best)} {when}, the best"


def _best(values: Sequence[float], is_rising: bool) -> float:
    return (max if is_rising else min)(value for value in values if math.isfinite(value))


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _written(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "not a finite number"
