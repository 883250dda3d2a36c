"""Attacks on a server, over loopback TCP, and what comes of them.

    python benchmarks/attacks.py [--only NAME …] [--seconds S] [--target PYTHONPATH] [--json FILE] [--markdown FILE]

Each attack has a run of its own: `seedbus server` with two honest workers, or `seedbus run --workers 2`, on the digits,
in simulated time. It ends as the undisturbed run did, or there was harm: another digest, an exit code that is not 0,
clients whose reports counted less often, honest workers that failed or were kept out while the attack went on, less
than a tenth of the rounds a second, 100 MB of memory, 100 kB/s of log or of terminal.

The processes that are attacked are those that PYTHONPATH of the target leads to (default: this environment's), so
earlier versions can be attacked, too; nothing of Seedbus is imported here, and what an attacker would have to compute
it has an honest client of the target compute, through a proxy. A rate is worth no more than the processor: the attacker
shares it with the run, so compare `before → during` of one row. Memory of the server is sampled ten times a second.

--seconds: how long floods go on; stalls take 25 s. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from attack_arena import HEADS, Arena, Outcome, Reference, reference
from attack_cases import Attack, cases


def attacked(attack: Attack, target: str | None, seconds: float, honest: Reference) -> Outcome:
    """Play an attack, and say what came of it."""
    with Arena(target, attack.rounds, seconds=seconds, reference=honest, **attack.options) as arena:
        sent = attack.play(arena)
        return arena.outcome(attack.name, attack.finding, sent)


def table(outcomes: Sequence[Outcome]) -> str:
    """In Markdown."""
    rows = [HEADS, ["---"] * len(HEADS), *[outcome.cells for outcome in outcomes]]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    known = cases()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[attack.name for attack in known])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--target", metavar="PYTHONPATH")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started here, too
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    chosen = [attack for attack in known if not asked.only or attack.name in asked.only]
    honest: dict[int, Reference] = {}
    outcomes: list[Outcome] = []
    for attack in chosen:
        if attack.rounds not in honest:
            honest[attack.rounds] = reference(asked.target, attack.rounds)
            outcomes.append(honest[attack.rounds].outcome)
            outcomes[-1].name = f"undisturbed, {attack.rounds} rounds"
        start = time.monotonic()
        outcomes.append(attacked(attack, asked.target, asked.seconds, honest[attack.rounds]))
        print(f"{time.monotonic() - start:5.0f} s  " + " | ".join(outcomes[-1].cells), flush=True)
    print("\n" + table(outcomes))
    if asked.json:
        asked.json.write_text(
            json.dumps([asdict(outcome) for outcome in outcomes], indent=1, ensure_ascii=False) + "\n"
        )
    if asked.markdown:
        asked.markdown.write_text(table(outcomes) + "\n", "utf-8")


if __name__ == "__main__":
    main()
