"""Reads what Weights & Biases wrote offline: a log in LevelDB's format, each record a message of its protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADER = 7  # bytes of the file, and of each fragment
BLOCK = 32_768  # bytes; no fragment lies in two


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a file."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, position, record = path.read_bytes(), HEADER, b""
    while position + HEADER <= len(content):
        if BLOCK - position % BLOCK < HEADER:  # the rest of a block is filled with zeros
            position += BLOCK - position % BLOCK
            continue
        length, kind = int.from_bytes(content[position + 4 : position + 6], "little"), content[position + 6]
        position += HEADER + length
        record += content[position - length : position]
        if kind in (1, 4):  # a whole record, or the last fragment of one
            yield Record.FromString(record)
            record = b""


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
