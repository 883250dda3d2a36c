"""The server: Flower's strategy, begun with the scenario's first model, and measured as the scenario says."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp, strategy

from .scenario import federation, part

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds; write the metrics and the last model."""
    ours = federation(context)
    arguments = part(context, "strategy")
    rule = getattr(strategy, arguments.pop("name"))(**arguments)
    x0 = ours.start()
    if isinstance(rule, strategy.FedAdam | strategy.FedYogi | strategy.FedAdagrad):
        rule.v_t = {"x": np.full_like(x0, rule.tau**2)}  # as the paper has it; Flower begins with zeros

    def evaluate(rounds: int, arrays: ArrayRecord) -> MetricRecord | None:
        found = ours.metrics(rounds, arrays["x"].numpy())
        return None if found is None else MetricRecord(found)

    start = ArrayRecord({"x": Array(x0)})
    result = rule.start(grid, start, num_rounds=ours.rounds, evaluate_fn=evaluate)
    out = Path(context.run_config["out"])
    lines = [{"rounds": rounds, **found} for rounds, found in result.evaluate_metrics_serverapp.items()]
    (out / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ours.save(out / "model.safetensors", result.arrays["x"].numpy())
