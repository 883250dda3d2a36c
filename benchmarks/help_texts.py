"""The help of every command as docs/reference.md shows it.

    python benchmarks/help_texts.py --write docs

Each block that begins with `Usage: seedbus COMMAND` is replaced by what
`seedbus COMMAND --help` prints, 100 columns wide.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path


def help_of(command: str) -> str:
    """Return what a command's --help prints, without colours and spaces at line ends."""
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    answer = subprocess.run(
        [sys.executable, "-m", "seedbus", *command.split(), "--help"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return "\n".join(line.rstrip() for line in answer.stdout.strip().splitlines())


def renewed(text: str) -> str:
    """Return the reference with the current help of each command."""
    return re.sub(
        r"(?m)^(```\n)Usage: seedbus ([a-z -]+) .*?(\n```)$",
        lambda found: found[1] + help_of(found[2]) + found[3],
        text,
        flags=re.DOTALL,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, required=True, metavar="DOCS", help="the folder of reference.md")
    path = parser.parse_args().write / "reference.md"
    path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
