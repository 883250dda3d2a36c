"""The results of a finished run, with its models: what `seedbus.run` returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from seedbus.models.task import Task
from seedbus.scenarios.reporting import results as stored
from seedbus.scenarios.running.replay import Replayed, replay


@dataclass(frozen=True)
class Results(stored.Results):
    """A finished run. Files are read when an attribute is first used.

    Attributes:
        folder: the run's folder, an absolute path.
        summary: the content of `results.json`, which `--format json` prints; `run` is the folder as it was given. If
            the files are not known to be what the run wrote, `warning` says why.
        is_changed: whether the files are known to be others than the run wrote.
        metrics: data frame with a row for every evaluation. `round` is the last round before it, from 0; of the first
            row, x₀, it is 0 too, and `version` is 0. What was not finite is NaN.
        rounds: data frame with a row for every round; see `reporting.round_table.RoundTable.columns`.
        messages: data frame with a row for every message; times in nanoseconds, sizes in bytes; see
            `seedbus.bus.ledger.Row`. `kind` and `fate` are names of `Kind` and `Fate`; `bytes` is the sum of header,
            payload and framing.
        clients: data frame with a row for every client; see `reporting.statistics.clients_table`. Where clients have
            names, as owners of a table have, its first column is `name`; where a fault's file has devices, the next one
            is `device` (`device, fault 0` and so on if a client has several).
        groups: data frame with two rows for every group of clients, `who` being "group" or "others": how many clients
            these are, their reports that count, in all, as a median and as a share of all reports, bytes up and down of
            a client (mean), of those down the bytes of catching up, and the mean lag when asked. A group is
            one of `client_groups`, or the clients that a fault strikes for the whole run, such as "fault 0: straggler";
            it is neither all clients nor none. A run of an earlier version has none.
        expectations: name → the bounds, the value found, and whether the expectation is met.
        missed: names of the expectations that are not met.
        training_diverged: whether the run ended early because training diverged.
        task: what the run trained, where it was made in this process; None: its folder says it.
    """

    task: Task | None = field(default=None, repr=False)

    @classmethod
    def of(cls, results: stored.Results, task: Task) -> Results:
        """Return the results of a run that trained a task."""
        return cls(results.folder, results.summary, results.is_changed, task)

    def model(self, round: int | None = None, *, task: Task | None = None) -> Replayed:
        """Return the model after a round, as `seedbus.replay` does, whose `network()` predicts.

        Args:
            round: number of rounds; None: all.
            task: the run's task, for results that were read from a folder, if it holds functions or data sets that only
                a Python program has; None: `self.task`.

        Raises:
            RunFolderError, JournalDamaged, DataError, ScenarioError: as `seedbus.replay` does.
        """
        return replay(self.folder, round, task=task or self.task)
