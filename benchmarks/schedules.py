"""Schedules drawn from seeds: whole runs over tcp in memory, what holds in each, and what some of them reach.

    python benchmarks/schedules.py --seeds 2000 [--first 0] [--write docs]

Each seed draws the order in which threads, sockets and packets have their turns, and what goes wrong beside that; its
run must end as the same scenario does in memory (`tests/support/drawn_runs.py`). A seed that fails is printed with the
fewest faults and deviations from the plain order that still fail. With `--write docs` the counts are added to those in
`schedules.json`, from the first seed that is not counted there, and the page's table is written anew.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from drawn_runs import WORLDS, drawn_run, reference, shrunk, what_is_wrong

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "schedules.json"
PAGE = Path("explanation") / "schedules.md"
BEGIN, END = "<!-- what benchmarks/schedules.py --write docs has counted -->\n", "<!-- up to here -->\n"
REFUSERS = ("bus/zeromq/packet.py", "bus/zeromq/server/*.py", "agents/server/registration.py", "bus/transport.py")


def reasons() -> list[str]:
    """Return the words with which a server refuses packets and processes, as its source has them."""
    files = [path for place in REFUSERS for path in sorted(ROOT.glob(place))]
    found = set[str]()
    for node in (node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
        match node:
            case ast.Call(func=ast.Name(id="MalformedPacket" | "Declined"), args=[ast.Constant(value=str(reason)), *_]):
                found.add(reason)
    return sorted(found)


def counted(first: int, seeds: int) -> tuple[Counter[str], list[int]]:
    """Run the schedules, print those that fail, and return in how many each thing was reached, and the failed seeds."""
    reached, failed = Counter[str](), []
    with tempfile.TemporaryDirectory() as name:
        folders = (Path(name) / f"run {number}" for number in count())
        expected = {world: reference(world, next(folders)) for world in WORLDS}
        for seed in track(range(first, first + seeds), "schedules", disable=not sys.stderr.isatty()):
            world = list(WORLDS)[seed % len(WORLDS)]
            with tempfile.TemporaryDirectory() as folder:
                found = drawn_run(seed, world, Path(folder))
                wrong = what_is_wrong(found, expected[world])
                reached.update({each: 1 for each in found.reached})
                reached["schedules"] += 1
                reached[f"scenario: {world}"] += 1
            if wrong:
                failed.append(seed)
                print(f"seed {seed}, {world}: {wrong}")
                faults, given = shrunk(seed, world, expected[world], found, _made(folders))
                print(f"  faults: {faults}\n  deviations: {given}", flush=True)
    return reached, failed


def _made(folders: Iterator[Path]) -> Iterator[Path]:
    for folder in folders:
        folder.mkdir()
        yield folder


def table(reached: dict[str, int]) -> str:
    """Return the page's table: what was reached in how many schedules, and what never was."""
    total = reached["schedules"]
    lines = [f"Of {total:,} schedules:", "", "| reached | in schedules |", "|---|---|"]
    groups = ("fault", "the server", "a process", "refused")
    lines += [
        f"| {what} | {reached[what]:,} |"
        for group in groups
        for what in sorted(reached)
        if what.startswith(f"{group}: ")
    ]
    never = [each for each in reasons() if f"refused: {each}" not in reached]
    return "\n".join([*lines, "", f"Never reached among the reasons to refuse: {', '.join(never)}.", ""])


def write(docs: Path, reached: dict[str, int]) -> None:
    page = docs / PAGE
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(before + BEGIN + table(reached) + END + after, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--write", type=Path, metavar="DOCS")
    given = parser.parse_args()
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    first = kept.get("schedules", 0) if given.write else given.first
    began_s = time.perf_counter()
    reached, failed = counted(first, given.seeds)
    each_s = (time.perf_counter() - began_s) / given.seeds
    print(f"seeds {first} to {first + given.seeds - 1}: {len(failed)} fail; {each_s:.3f} s each")
    if given.write and not failed:
        kept = dict(sorted((Counter(kept) + reached).items()))
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        write(given.write, kept)
    else:
        print(table(reached))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
