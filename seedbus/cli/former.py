"""Names of commands and options that there were once, and what is typed instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

_AS_SETTINGS = {
    "analyse": (
        "samples probes steps diagonal-probes exact-up-to nulls clients client-samples metric",
        "analyse RUN --set",
    ),
    "init": ("task algorithm partition clients cohort rounds dropout stragglers", "init FILE --set"),
    "run": ("address worker-cpus worker-gpus", "run SCENARIO --launch"),
    "study": ("address worker-cpus worker-gpus", "study FILE --launch"),
}
FORMER = {
    "check": "explain SCENARIO fields",
    "partition": "explain SCENARIO partition",
    "privacy": "explain RUN privacy` or `seedbus explain SCENARIO privacy --target epsilon=E",
    "replay": "export RUN --at ROUND",
    "schema": "list schema",
    "stop": "runs RUN --stop",
    "top": "runs RUN",
    "analyse --rounds": "analyse RUN --at ROUNDS",
    "compare --smoothed": "compare RUN --target METRIC_ema=VALUE",
    "client --memory": "client --out FOLDER",
    "report --client": "export RUN messages --only client=NUMBER",
    "report --kind": "export RUN messages --only kind=KIND",
    "report --messages": "export RUN messages",
    "report --round": "export RUN messages --only round=ROUND",
    "server --expect-workers": "server SCENARIO --workers COUNT",
    "stress --keep": "stress --out FOLDER",
    "stress --workers": "stress --jobs COUNT",
    "study --folder": "study FILE --out FOLDER",
} | {
    f"{command} --{name}": f"{now} {name.replace('-', '_')}=VALUE"
    for command, (names, now) in _AS_SETTINGS.items()
    for name in names.split()
}
"""What was typed → what is typed now, both without `seedbus`."""


_FIELDS = {
    "clients": "participation.clients",
    "lr": "algorithm.learning_rate",
    "num_clients": "participation.clients",
    "num_rounds": "stop.rounds",
    "rounds": "stop.rounds",
    "seed": "seed",
}
"""What other tools take as an option → the field of a scenario."""


def setting(arguments: Sequence[str], option: str, problem: str) -> str:
    """Return a sentence that names --set where a field was typed as an option or an argument; "" elsewhere.

    Args:
        arguments: what was typed after `seedbus`.
        option: the option that is not known; "": none.
        problem: what typer says.
    """
    if arguments[:1] not in (["run"], ["server"], ["explain"]):
        return ""
    field, extra = _FIELDS.get(option.lstrip("-").replace("-", "_")), re.search(r"argument.*\((\S+=\S*)\)", problem)
    if field is not None:
        return f"there is no {option}, for it is a field of the scenario; expected `--set {field}=VALUE`"
    return f"{extra[1]} is a field of the scenario; expected `--set {extra[1]}`" if extra else ""


def new_form(arguments: Sequence[str], option: str) -> str:
    """Return a sentence with the present form of a command line that is not understood; "" if it never was one.

    Args:
        arguments: what was typed after `seedbus`.
        option: the option that is not known; "": the command is not.
    """
    typed = f"{arguments[0]} {option}".rstrip() if arguments else ""
    return f"`seedbus {typed}` is now `seedbus {FORMER[typed]}`" if typed in FORMER else ""
