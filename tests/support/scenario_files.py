"""A small scenario as text, and a function that writes scenario files."""

from __future__ import annotations

from pathlib import Path

SMALL = """\
name: small
task: {name: quadratic}
algorithm: {name: decomfl}
participation: {clients: 4, cohort: 2}
stop: {rounds: 3}
"""


def write_scenario(folder: Path, text: str | bytes = SMALL, name: str = "s.yaml") -> Path:
    """Write a scenario file into a folder, and return its path."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
