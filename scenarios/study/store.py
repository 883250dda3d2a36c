"""The folder of studies: runs by their content, so that no run is made twice, and each study's report.

studies/runs/KEY/          a run, as `seedbus run --out` writes it
studies/runs/KEY.json      what else was measured of its final model
studies/NAME/              the report of the study NAME
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.bus.files import make_folder, read
from seedbus.scenarios.reporting.results import RESULTS, write
from seedbus.scenarios.schema.scenario import Scenario

NOT_IN_KEY = ("name", "description", "transport", "expect")
"""Fields that change neither the bits of a run nor its messages."""

Measured = dict[str, dict[str, float | None]]
"""Split → metric → value, and instrument → quantity → value."""


@dataclass(frozen=True)
class StoredRun:
    """Where a run lies, whether or not it has begun.

    Attributes:
        scenario: what is run.
        folder: the run's folder.
    """

    scenario: Scenario
    folder: Path

    @property
    def is_finished(self) -> bool:
        return (self.folder / RESULTS).is_file()

    @property
    def has_begun(self) -> bool:
        return (self.folder / FILE).is_file()

    def measured(self) -> Measured:
        """Return what was measured of the final model, on further splits and by instruments."""
        path = self._measured_file
        try:
            found = json.loads(read(path)) if path.is_file() else {}
        except (OSError, ValueError) as error:
            raise RunFolderError(path, f"it cannot be read ({error}); delete it, and it is made again") from None
        return found if isinstance(found, dict) else {}

    def add(self, measured: Measured) -> None:
        write(self._measured_file, json.dumps(self.measured() | measured))

    @property
    def _measured_file(self) -> Path:
        return self.folder.with_name(self.folder.name + ".json")


@dataclass(frozen=True)
class Store:
    """A folder of studies."""

    folder: Path

    def stored(self, scenario: Scenario) -> StoredRun:
        """Return where a scenario's run lies.

        Raises:
            ScenarioError, DataError: a file that the scenario names cannot be read.
        """
        return StoredRun(scenario, self.folder / "runs" / key(scenario))

    def report_folder(self, name: str) -> Path:
        """Return the folder of a study's report, which is created. Raises `OSError`."""
        folder = self.folder / name
        make_folder(folder)
        return folder


def key(scenario: Scenario) -> str:
    """Return 16 hexadecimal digits of a run's content: its scenario with seed and plug-ins, files, and version."""
    content = {
        "scenario": {name: value for name, value in scenario.resolved().items() if name not in NOT_IN_KEY},
        "files": scenario.check(),
        "version": metadata.version("seedbus"),
    }
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()
