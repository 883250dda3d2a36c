"""The results of a run, read back from its folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbus.agents.errors import RunFolderError

if TYPE_CHECKING:
    import pandas as pd

RESULTS = "results.json"
MESSAGES = "messages"


@dataclass(frozen=True)
class Results:
    """A finished run.

    summary: what `--format json` prints. metrics: a data frame with a row for every evaluation. messages: a data
    frame with a row for every message (times in nanoseconds, sizes in bytes; see seedbus.bus.ledger.Row).
    """

    folder: Path
    summary: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Results:
        """The results in a run's folder. Raises `RunFolderError` if the run is not finished."""
        path = folder / RESULTS
        try:
            return cls(folder, json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise RunFolderError(folder, "there is no finished run here; go on with `seedbus run --resume`") from None
        except (OSError, ValueError) as error:
            raise RunFolderError(path, f"it cannot be read ({error})") from None

    @property
    def digest(self) -> str:
        """The digest of the final model."""
        return str(self.summary["digest"])

    @cached_property
    def metrics(self) -> pd.DataFrame:
        import pandas as pd

        from seedbus.scenarios.recording import METRICS

        return pd.read_json(self.folder / METRICS, lines=True)

    @cached_property
    def messages(self) -> pd.DataFrame:
        import pandas as pd

        from seedbus.bus import Fate, Kind, read_ledger

        frame = pd.DataFrame(read_ledger(self.folder / MESSAGES))
        frame["kind"] = frame["kind"].map({int(kind): kind.name for kind in Kind})
        frame["fate"] = frame["fate"].map({int(fate): fate.name for fate in Fate})
        return frame
