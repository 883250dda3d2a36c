"""Reads what Weights & Biases wrote offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seedbus.scenarios.tracking.wandb import records


def logged(folder: Path) -> tuple[set[str], list[dict[str, Any]], dict[str, Any]]:
    """Return the ids of the runs in a folder's files, the rows that were logged, and the closing summary."""
    ids, rows, summary = set[str](), list[dict[str, Any]](), dict[str, Any]()
    for path in sorted(folder.glob("offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime):
        for record in records(path):
            if record.HasField("run"):
                ids.add(record.run.run_id)
            if record.HasField("history"):
                items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                rows.append({"_step": record.history.step.num, **items})
            if record.HasField("summary"):
                summary |= {each.key: json.loads(each.value_json) for each in record.summary.update}
    return ids, rows, summary
