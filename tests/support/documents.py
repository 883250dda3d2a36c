"""Runs what a page of the documentation shows: its files are written, its commands run, and their output compared.

    python tests/support/documents.py          counts the commands under test, and those that are not, page by page
    python tests/support/documents.py PAGE …   runs pages, and writes what is printed where they show another thing

`document_blocks.py` has the marks of blocks, `document_outputs.py` what may differ. A page is followed in an empty
folder with links to examples/ and tests/.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory

from document_blocks import PAGES, ROOT, Block, blocks
from document_outputs import is_as_shown, trimmed
from warm_command import warm

SLOWER = 20
"""How many times as long as on two quiet cores a command may take before it is ended."""

_NEEDS_A_PROCESS = re.compile(r"(?<![>&])&(?![>&\d])|\bkill\b|\btimeout\b")
"""A command that goes on in the background, or is sent signals, is a process of its own (see `warm_command`)."""


@dataclass(frozen=True)
class Difference:
    """A command that prints something else than its page shows.

    Attributes:
        line: the first line of its block in the page.
        command: the command.
        shown: what the page shows.
        printed: what was printed.
    """

    line: int
    command: str
    shown: str
    printed: str

    def __str__(self) -> str:
        lines = unified_diff(self.shown.splitlines(), self.printed.splitlines(), "shown", "printed", n=1)
        return "\n".join([f"line {self.line}: {self.command}", *lines])


def follow(
    page: Path, folder: Path, *, is_soak: bool = False, is_literal: bool = False, is_same_processor: bool = False
) -> Iterator[Difference]:
    """Do what a page shows, and yield each difference between what it shows and what is printed.

    Args:
        page: the page.
        folder: an empty folder.
        is_soak: do what takes minutes or hours, too.
        is_literal: in outputs that are shown without `…`, no number and digest may differ.
        is_same_processor: the page was printed on such a processor (see `is_as_shown`).
    """
    for name in ("examples", "tests"):
        (folder / name).symlink_to(ROOT / name)
    shell = _Shell(folder)
    digests: dict[str, str] = {}
    try:
        for block in blocks(page):
            if block.title:
                path = folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif not block.why_not and (is_soak or not block.is_soak):
                for command, shown in block.commands:
                    code, printed = shell.run(_order(block, command), block.within_s * SLOWER)
                    if block.language == "python" or not block.is_shown:
                        if code:
                            yield Difference(block.line, command, "exit code 0\n", f"{printed}exit code {code}\n")
                        continue
                    is_other = is_literal and "…" not in shown and shown != printed
                    if is_other or not is_as_shown(
                        shown, printed, digests, is_exact=block.is_exact, is_same_processor=is_same_processor
                    ):
                        yield Difference(block.line, command, shown, printed)
    finally:
        shell.end()


def _order(block: Block, command: str) -> list[str]:
    if block.language == "python":
        return [str(warm() / "seedbus"), "-c", command]
    if block.rounds:
        fewer = rf"\g<0> --set stop.rounds={block.rounds} --set evaluation.every={block.rounds}"
        command = re.sub(r"\bseedbus run \S+", fewer, command)
    return ["bash", "-c", command]


class _Shell:
    """Runs the commands of a page, and ends what they leave behind.

    Args:
        folder: the folder in which they are run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._groups: list[int] = []
        self._path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = {**os.environ, "COLUMNS": "100", "TERM": "dumb"}

    def run(self, command: list[str], within_s: int) -> tuple[int, str]:
        """Run a command, and return its exit code and what it printed; one that takes too long is killed."""
        path = self._path if _NEEDS_A_PROCESS.search(command[-1]) else os.pathsep.join([str(warm()), self._path])
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env=self._environment | {"PATH": path},
            text=True,
            start_new_session=True,
        )
        self._groups.append(process.pid)
        try:
            text, _ = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate()
            return process.returncode, f"{trimmed(text)}it had not ended after {within_s} s\n"
        return process.returncode, trimmed(text)

    def end(self) -> None:
        """Kill the processes that commands have left in the background."""
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


def _count() -> None:
    """Print the number of commands of each page that are run, and the blocks that are not."""
    totals = {"run": 0, "compared": 0, "soak": 0, "not": 0}
    for page in PAGES:
        of_page = [block for block in blocks(page) if block.commands]
        run = sum(len(block.commands) for block in of_page if not block.why_not)
        if of_page:
            print(f"{run:4} {page.relative_to(ROOT)}")
        for block in of_page:
            count = len(block.commands)
            totals["not" if block.why_not else "run"] += count
            if block.why_not:
                print(f"       line {block.line}: {count} not run: {block.why_not}")
                continue
            totals["compared"] += count * (block.is_shown and block.language == "console")
            totals["soak"] += count * block.is_soak
    print(
        f"{totals['run']} commands and programs are run, {totals['soak']} of them by `make soak`; what "
        f"{totals['compared']} of them print is compared; {totals['not']} are not run"
    )


def _write(page: Path) -> None:
    """Run a page, and write what its commands print where the page shows something else."""
    with TemporaryDirectory() as folder:
        for difference in follow(page, Path(folder), is_literal=True):
            print(f"{page.name}, {difference}")
            text = page.read_text(encoding="utf-8")
            for order in (f"$ {difference.command}\n", f"<!-- table by: {difference.command} -->\n\n"):
                text = text.replace(order + difference.shown, order + difference.printed, 1)
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        _write(Path(each))
    if not sys.argv[1:]:
        _count()
