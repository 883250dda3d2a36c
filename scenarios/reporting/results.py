"""The results of a run, read back from its folder."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.bus.files import atomic_write, read
from seedbus.scenarios.reporting.summary import wrong_in_lines, wrong_in_summary

if TYPE_CHECKING:
    import pandas as pd

    from seedbus.bus.ledger import Columns
    from seedbus.scenarios.reporting.round_table import RoundTable
    from seedbus.scenarios.reporting.statistics import Table

RESULTS = "results.json"
METRICS = "metrics.jsonl"
MESSAGES = "messages"


@dataclass(frozen=True)
class Results:
    """A finished run.

    summary: what `--format json` prints. metrics: a data frame with a row for every evaluation. messages: a data
    frame with a row for every message (times in nanoseconds, sizes in bytes; see seedbus.bus.ledger.Row). clients: a
    data frame with a row for every client (see reporting.statistics.clients_table). expectations: name → its
    bounds, what was found, and whether it is met; missed: the names of those that are not.
    """

    folder: Path
    summary: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Results:
        """The results in a run's folder. Raises `RunFolderError` if the run is not finished."""
        path = folder / RESULTS
        if not os.path.lexists(path):
            is_run = os.path.isfile(folder / FILE)
            unfinished = f"this run is not finished; go on with `seedbus run --resume {folder}`"
            raise RunFolderError(folder, unfinished if is_run else f"there is no run here (no {FILE})")
        summary = _decoded(path, lambda text: [_json(text)])[0]
        if (wrong := wrong_in_summary(summary)) is not None:
            raise _damaged(path, wrong)
        return cls(folder, summary)

    @property
    def digest(self) -> str:
        """The digest of the final model."""
        return str(self.summary["digest"])

    @property
    def expectations(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.summary["expectations"]
        return found

    @property
    def missed(self) -> list[str]:
        return [name for name, each in self.expectations.items() if not each["is_met"]]

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The evaluations, oldest first."""
        # json and not pandas' own reader, which rounds
        path = self.folder / METRICS
        found = _decoded(path, lambda text: [_json(line) for line in text.splitlines()])
        if (wrong := wrong_in_lines(found)) is not None:
            raise _damaged(path, wrong)
        return found

    @cached_property
    def metrics(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(self.lines)

    @cached_property
    def clients(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(self.table).rename_axis("client")

    @cached_property
    def table(self) -> Table:
        """The clients as arrays. Raises what `columns` and `history` do."""
        from seedbus.scenarios.reporting.statistics import Heard, clients_table, folding
        from seedbus.scenarios.run_folder import scenario_of

        scenario, columns, history = scenario_of(self.folder), self.columns, self.history
        return clients_table(columns, history, Heard(columns, history), folding(scenario.compute, scenario.seed))

    @cached_property
    def messages(self) -> pd.DataFrame:
        import pandas as pd

        from seedbus.bus import Fate, Kind

        frame = pd.DataFrame(self.columns)
        frame["kind"] = frame["kind"].map({int(kind): kind.name for kind in Kind})
        frame["fate"] = frame["fate"].map({int(fate): fate.name for fate in Fate})
        return frame

    @cached_property
    def columns(self) -> Columns:
        """The ledger as arrays. Raises `LedgerDamaged`."""
        from seedbus.bus import read_ledger
        from seedbus.bus.errors import LedgerDamaged

        traffic = self.summary["traffic"]
        folder, expected = self.folder / MESSAGES, sum(traffic["fates"].values()) + traffic["transport"]["rows"]
        columns = read_ledger(folder)
        if columns["kind"].size != expected:
            raise LedgerDamaged(str(folder), f"holds {columns['kind'].size:,} of {expected:,} messages")
        return columns

    @cached_property
    def history(self) -> RoundTable:
        """All rounds as arrays. Raises `RunFolderError`, `JournalDamaged`."""
        from seedbus.scenarios.reporting.round_table import RoundTable
        from seedbus.scenarios.run_folder import scenario_of

        with closing(Journal.open(self.folder, for_writing=False)) as journal:
            return RoundTable.of(journal.rounds(), scenario_of(self.folder).participation.clients)


def strict(value: Any) -> Any:
    """The value for JSON, which knows neither NaN nor infinity: they become null."""
    if isinstance(value, dict):
        return {name: strict(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(path: Path, text: str) -> None:
    """Whole or not at all. Raises `OSError`."""
    with atomic_write(path) as file:
        file.write(text.encode())


def _json(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _decoded(path: Path, decode: Callable[[str], list[Any]]) -> list[dict[str, Any]]:
    try:
        found = decode(read(path).decode())
    except OSError as error:
        raise RunFolderError(path, f"it cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    except RecursionError:
        raise _damaged(path, "it is nested too deeply") from None
    if not all(isinstance(each, dict) for each in found):
        raise _damaged(path, "it holds other things than JSON objects")
    return found


def _damaged(path: Path, what: str) -> RunFolderError:
    mend = f"delete {RESULTS}, and `seedbus run --resume {path.parent}` writes it and {METRICS} again"
    return RunFolderError(path, f"it is damaged ({what}); {mend}")
