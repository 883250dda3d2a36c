"""What another process finds of the same things. Run as a module, it is that process.

It reads one line of JSON, {"plugins": [path, …], "things": [[kind, fields], …]}, and writes a list of digests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from seedbus.discovery import KINDS, PLUGINS
from seedbus.studies.check.kinds import HOMES, home, subject_of
from seedbus.studies.check.promises import digest

_HASH_SEED = "20000"
"""Of the other process: what depends on the order of a set of words is found out."""


def found_of(noun: str, subject: Any) -> str:
    """Return the digest of what this process finds; noun: what kind of thing it is."""
    return digest(home(noun).results(subject))


def found_elsewhere(things: Sequence[tuple[str, BaseModel]]) -> list[str]:
    """Return the digests of what another process finds of these things, each with what kind of thing it is.

    Raises:
        AssertionError: the other process failed; with the last line that it wrote.
    """
    paths = [plugin.path for plugin in PLUGINS.values() if plugin.path]
    order = {"plugins": paths, "things": [[noun, model.model_dump(mode="json")] for noun, model in things]}
    answer = subprocess.run(
        [sys.executable, "-m", __spec__.name],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": _HASH_SEED},
    )
    if answer.returncode:
        last = (answer.stderr.strip() or answer.stdout.strip() or "it wrote nothing").splitlines()[-1]
        raise AssertionError(f"another process failed: {last}")
    digests: list[str] = json.loads(answer.stdout.splitlines()[-1])
    return digests


def main() -> None:
    from seedbus.scenarios.schema.plugins import load_plugins

    order = json.loads(sys.stdin.readline())
    load_plugins(order["plugins"])
    kinds = {kind.noun: kind for kind in KINDS if kind.noun in HOMES}
    digests = []
    for noun, fields in order["things"]:
        kind = kinds[noun]
        model = kind.all()[fields[kind.tag]].model_validate_json(json.dumps(fields))
        digests.append(found_of(noun, subject_of(noun, model)))
    sys.stdout.write(f"{json.dumps(digests)}\n")


if __name__ == "__main__":
    main()
