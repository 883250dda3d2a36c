"""How many of each room's statements the tests reach that `make coverage` has just run, and how many they miss."""

import json
from collections import Counter
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "build" / "coverage.json"


def by_room(files: dict[str, dict[str, dict[str, int]]]) -> list[tuple[str, int, int]]:
    """Return (room, statements reached, statements) for each room, by name; the last row is all of them."""
    reached: Counter[str] = Counter()
    there: Counter[str] = Counter()
    for file, found in files.items():
        for room in ("/".join(file.split("/")[:-1][:2]), "~ all rooms"):
            reached[room] += found["summary"]["covered_lines"]
            there[room] += found["summary"]["num_statements"]
    return [(room, reached[room], there[room]) for room in sorted(there)]


if __name__ == "__main__":
    for room, reached, there in by_room(json.loads(FILE.read_text(encoding="utf-8"))["files"]):
        print(f"{room.strip('~ '):28}{reached / max(there, 1):7.1%}{there - reached:8,} missed of {there:,}")
