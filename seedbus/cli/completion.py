"""What a shell completes: names of scenarios and studies, kinds and what there is of each, and the fields of `--set`.

Each function takes the word as far as it is typed, and returns the words that it may become.
"""

from __future__ import annotations

from collections.abc import Iterable
from glob import escape, glob
from pathlib import Path

import typer


def included(incomplete: str) -> list[str]:
    """Complete the name of a scenario that comes with Seedbus."""
    from seedbus.scenarios.schema.loading import library

    return _beginning(incomplete, library())


def scenarios(incomplete: str) -> list[str]:
    """Complete the name of a scenario that comes with Seedbus, or a file."""
    return included(incomplete) + _files(incomplete)


def studies(incomplete: str) -> list[str]:
    """Complete the name of a study that comes with Seedbus, or a file."""
    from seedbus.scenarios.schema.loading import studies as found

    return _beginning(incomplete, found()) + _files(incomplete)


def lists(incomplete: str) -> list[str]:
    """Complete what `seedbus list` lists."""
    from seedbus.scenarios.reporting.described import kinds

    return _beginning(incomplete, ["scenarios", "studies", "plugins", "schema", *kinds()])


def listed(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of one of those that `seedbus list` lists."""
    from seedbus.scenarios.reporting.described import kinds
    from seedbus.scenarios.schema.loading import library
    from seedbus.scenarios.schema.loading import studies as found

    known = {"scenarios": library, "studies": found} | {name: kind.all for name, kind in kinds().items()}
    what = context.params.get("what")
    return _beginning(incomplete, known[what]()) if what in known else []


def settings(incomplete: str) -> list[str]:
    """Complete the field of `--set FIELD=VALUE` by one level: to `algorithm.`, then to `algorithm.momentum=`."""
    from seedbus.scenarios.reporting.fields import paths_in_scenarios

    levels = incomplete.count(".") + 1
    found: dict[str, None] = {}
    for model, paths in paths_in_scenarios().items():
        for path in paths:
            for field in model.model_fields:
                *names, end = f"{path}.{field}".lstrip(".").split(".")
                found |= {".".join([*names, end][:levels]) + ("." if len(names) >= levels else "="): None}
    return _beginning(incomplete, found)


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _files(incomplete: str) -> list[str]:
    """Complete a folder, or a file with the ending of scenarios."""
    folders = [f"{each}/" for each in sorted(glob(f"{escape(incomplete)}*")) if Path(each).is_dir()]
    return folders + sorted(glob(f"{escape(incomplete)}*.yaml"))
