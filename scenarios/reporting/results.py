"""The results of a finished run, read from its folder."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.bus import Fate, Kind, read_ledger
from seedbus.bus.errors import LedgerDamaged
from seedbus.bus.files import MOST_TEXT, atomic_write, read
from seedbus.bus.ledger import MESSAGES, with_sizes
from seedbus.scenarios.errors import ScenarioError, path_of
from seedbus.scenarios.reporting.results_digest import WARNING, warned
from seedbus.scenarios.reporting.results_schema import first_problem, lines_problem, summary_problem
from seedbus.scenarios.run_folder import METRICS, RESULTS, resuming
from seedbus.scenarios.sentences import nearest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from seedbus.bus.ledger import Columns
    from seedbus.scenarios.reporting.round_table import RoundTable
    from seedbus.scenarios.reporting.statistics import ArrivedReports, Table

Form = TypeVar("Form")


@dataclass(frozen=True)
class Results:
    """A finished run without its models; `running.results.Results` says its attributes."""

    folder: Path
    summary: dict[str, Any] = field(repr=False)
    is_changed: bool = False

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Read the results in a run's folder.

        Raises:
            RunFolderError: the run is not finished, or its results are damaged.
            ScenarioError: `folder` is no name of a folder.
        """
        folder = path_of(folder, "folder", "the folder of a run")
        path = folder / RESULTS
        if not os.path.lexists(path):
            is_run = os.path.isfile(folder / FILE)
            unfinished = f"this run is not finished; go on with `{resuming(folder)}`"
            raise RunFolderError(folder, unfinished if is_run else f"there is no run here (no {FILE})")
        content = content_of(path)
        summary = decoded(path, content)
        if (problem := summary_problem(summary)) is not None:
            raise _damaged(path, problem)
        summary.pop(WARNING, None)  # which is ours to give
        sentence, is_changed = warned(folder, content)
        # the run may have been moved since
        summary |= {"run": str(folder)} | ({WARNING: sentence} if sentence else {})
        return cls(folder.absolute(), summary, is_changed)

    @property
    def digest(self) -> str:
        """The digest of the final model."""
        return str(self.summary["digest"])

    @property
    def warning(self) -> str:
        """Why the files may not be what the run wrote; "": they are."""
        return str(self.summary.get(WARNING, ""))

    @property
    def training_diverged(self) -> bool:
        return bool(self.summary.get("training_diverged"))

    @property
    def expectations(self) -> dict[str, dict[str, Any]]:
        expectations: dict[str, dict[str, Any]] = self.summary["expectations"]
        return expectations

    @property
    def missed(self) -> list[str]:
        return [name for name, each in self.expectations.items() if not each["is_met"]]

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The evaluations, oldest first."""
        path = self.folder / METRICS
        # pandas' own JSON reader rounds numbers
        lines = _decoded(path, content_of(path), lambda text: [_json(line) for line in text.splitlines()])
        if (problem := lines_problem(lines)) is not None:
            raise _damaged(path, problem)
        return lines

    @cached_property
    def metrics(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame([{k: math.nan if v is None else v for k, v in line.items()} for line in self.lines])

    @cached_property
    def rounds(self) -> pd.DataFrame:
        import pandas as pd

        from seedbus.scenarios.run_folder import figures_of

        return pd.DataFrame(self.history.columns() | figures_of(self.folder)).rename_axis("round")

    @cached_property
    def clients(self) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame(self.summary.get("client_devices", {}) | self.table).rename_axis("client")
        if self.client_names:
            frame.insert(0, "name", self.client_names)
        return frame

    @property
    def client_names(self) -> list[str]:
        """The names of clients 0, 1, …; none if they have no names."""
        return list(self.summary.get("client_names", ()))

    @cached_property
    def groups(self) -> pd.DataFrame:
        import pandas as pd

        found = {}
        for name, each in self.summary.get("groups", {}).items():
            found[name, "group"] = {column: value for column, value in each.items() if column != "others"}
            found[name, "others"] = each["others"]
        index = pd.MultiIndex.from_tuples(list(found), names=["group", "who"]) if found else None
        return pd.DataFrame(list(found.values()), index)

    @cached_property
    def table(self) -> Table:
        """The per-client statistics as arrays, [N] each.

        Raises:
            LedgerDamaged: see `columns`.
            RunFolderError, JournalDamaged: see `history`.
        """
        from seedbus.scenarios.reporting.statistics import clients_table, replay_time
        from seedbus.scenarios.run_folder import part_of

        replay_s = replay_time(part_of(self.folder, "compute"), part_of(self.folder, "seed"))
        return clients_table(self.columns, self.history, self.arrived, replay_s)

    @cached_property
    def arrived(self) -> ArrivedReports:
        """The reports that arrived at the server; raises what `table` does."""
        from seedbus.scenarios.reporting.statistics import ArrivedReports

        return ArrivedReports(self.columns, self.history)

    @cached_property
    def messages(self) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame(with_sizes(self.columns))
        frame["kind"] = frame["kind"].map({int(kind): kind.name for kind in Kind})
        frame["fate"] = frame["fate"].map({int(fate): fate.name for fate in Fate})
        return frame

    @cached_property
    def columns(self) -> Columns:
        """The ledger as arrays.

        Raises:
            LedgerDamaged: it cannot be read, or holds another number of messages than the summary counts.
        """
        traffic = self.summary["traffic"]
        folder, expected = self.folder / MESSAGES, sum(traffic["fates"].values()) + traffic["transport"]["rows"]
        columns = read_ledger(folder)
        if columns["kind"].size != expected:
            raise LedgerDamaged(str(folder), f"holds {columns['kind'].size:,} of {expected:,} messages")
        return columns

    @cached_property
    def history(self) -> RoundTable:
        """All rounds as arrays.

        Raises:
            RunFolderError: there is no journal in the folder.
            JournalDamaged: the journal cannot be read.
        """
        from seedbus.scenarios.reporting.round_table import RoundTable

        with closing(Journal.open(self.folder, for_writing=False)) as journal, journal.decoding():
            return RoundTable.of(journal.rounds(), self.summary["participation"]["clients"])

    def memory(self, client: int) -> Any:
        """Return what a client remembers after its last work and never sent, as the run's folder keeps it.

        Of a dense algorithm these are vectors by name, float32 [d], such as a personal model; of another algorithm,
        what its `local` returned. None: the client remembers nothing.

        Raises:
            ScenarioError: there is no such client.
            RunFolderError: the client's memory cannot be read.
        """
        from seedbus.agents.client.client_state import ClientStateStore
        from seedbus.scenarios.run_folder import MEMORY, scenario_of

        scenario = scenario_of(self.folder)
        clients = scenario.participation.clients
        if client not in range(clients):
            raise ScenarioError("Results.memory", [f"there is no client {client!r}; expected 0 to {clients - 1}"])
        algorithm = scenario.algorithm.sized(self.summary["dimension"])
        memory = ClientStateStore(self.folder / MEMORY, algorithm).before(int(client), self.summary["rounds"])
        if memory is None or not algorithm.facts.is_dense:
            return memory
        return {name: np.frombuffer(vector, "<f4").astype(np.float32) for name, vector in memory.items()} or None

    def plot(
        self, metric: str | None = None, *, over: Literal["round", "time_s", "bytes"] = "round", ax: Axes | None = None
    ) -> Axes:
        """Draw a metric with matplotlib.

        Args:
            metric: a column of `metrics`; None: the accuracy, or where there is none the loss.
            over: what is on the x axis: rounds, seconds of the run's clock, or bytes sent, up and down.
            ax: the axes to draw on, such as another run's; None: new ones.

        Raises:
            ScenarioError: nothing of that name was measured.
        """
        from matplotlib import pyplot

        from seedbus.scenarios.reporting.paper import plain

        frame = self.metrics
        frame = frame.assign(bytes=frame["bytes_up"] + frame["bytes_down"])
        for name in (metric, over):
            if name is not None and (not isinstance(name, str) or name not in frame):
                hint = nearest(str(name), map(str, frame))
                raise ScenarioError("Results.plot", [f"{name!r} is not measured; {hint}"])
        if metric == over:
            raise ScenarioError("Results.plot", [f"{over!r} over itself is not accepted; expected another quantity"])
        shown = metric or ("accuracy" if "accuracy" in frame else "loss")
        ax, name = ax or pyplot.subplots()[1], plain(self.folder.name)
        drawn: Axes = frame.plot(x=over, y=shown, xlabel=plain(over), ylabel=plain(shown), label=name, ax=ax)
        return drawn

    def __str__(self) -> str:
        """Return the closing table, as `seedbus report` prints it."""
        from seedbus.scenarios.reporting.closing_table import as_text

        return as_text(self.summary)

    def _repr_html_(self) -> str:
        """Return the closing table, which a notebook shows."""
        from seedbus.scenarios.reporting.closing_table import grouped, groups

        return grouped(groups(self.summary))


def strict(value: Any) -> Any:
    """Return the value with NaN and infinities replaced by None, since JSON has no word for them."""
    if isinstance(value, dict):
        return {name: strict(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(path: Path, text: str | bytes) -> None:
    """Write a text file, in UTF-8, atomically.

    Raises:
        OSError: the file cannot be written; an older file is left as it was.
    """
    with atomic_write(path) as file:
        file.write(text.encode() if isinstance(text, str) else text)


def write_named(path: Path, text: str | bytes) -> None:
    """Write a file as `write` does; an error names it as its user did, and not the temporary file."""
    try:
        write(path, text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def decoded(path: Path, content: bytes, number: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Return the object of a `results.json`, whatever its fields are; number: reads its numbers.

    Raises:
        RunFolderError: it is no JSON object.
    """
    return _decoded(path, content, lambda text: [_json(text, number)])[0]


def _json(text: str, number: Callable[[str], Any] | None = None) -> Any:
    return json.loads(text, parse_constant=_refuse_constant, parse_float=number, parse_int=number)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def content_of(path: Path) -> bytes:
    """Return the bytes of a file of a run's folder. Raises `RunFolderError` if it cannot be read."""
    try:
        return read(path, MOST_TEXT)
    except OSError as error:
        raise RunFolderError(path, f"it cannot be read ({error.strerror})") from None


def stored_json(path: Path, form: TypeAdapter[Form], repair: str) -> Form:
    """Return what a file of JSON holds that belongs to a run.

    Args:
        path: the file.
        form: what it is to hold.
        repair: what to do about another one, in words.

    Raises:
        FileNotFoundError: there is none.
        RunFolderError: it cannot be read, or is damaged.
    """
    try:
        return form.validate_json(read(path, MOST_TEXT), strict=True)
    except FileNotFoundError:
        raise
    except OSError as error:
        what = f"it cannot be read ({error.strerror})"
    except ValidationError as error:
        what = f"it is damaged ({first_problem(error)})"
    raise RunFolderError(path, f"{what}; {repair}")


def _decoded(path: Path, content: bytes, decode: Callable[[str], list[Any]]) -> list[dict[str, Any]]:
    try:
        objects = decode(content.decode())
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    except RecursionError:
        raise _damaged(path, "it is nested too deeply") from None
    if not all(isinstance(each, dict) for each in objects):
        raise _damaged(path, "it holds other things than JSON objects")
    return objects


def _damaged(path: Path, problem: str) -> RunFolderError:
    repair = f"delete {RESULTS}, and `{resuming(path.parent)}` writes it and {METRICS} again"
    return RunFolderError(path, f"it is damaged ({problem}); {repair}")
