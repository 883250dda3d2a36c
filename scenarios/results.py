"""The results of a run, read back from its folder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal_file import FILE

if TYPE_CHECKING:
    import pandas as pd

RESULTS = "results.json"
METRICS = "metrics.jsonl"
MESSAGES = "messages"
_KEYS = {"scenario", "reason", "digest", "metrics", "traffic", "refusals"}


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
        if not path.exists():
            is_run = (folder / FILE).exists()
            unfinished = f"this run is not finished; go on with `seedbus run --resume {folder}`"
            raise RunFolderError(folder, unfinished if is_run else f"there is no run here (no {FILE})")
        summary = _decoded(path, lambda text: [json.loads(text)])[0]
        if not summary.keys() >= _KEYS:
            raise _damaged(path, f"it lacks {', '.join(sorted(_KEYS - summary.keys()))}")
        return cls(folder, summary)

    @property
    def digest(self) -> str:
        """The digest of the final model."""
        return str(self.summary["digest"])

    @cached_property
    def metrics(self) -> pd.DataFrame:
        import pandas as pd

        # json and not pandas' own reader, which rounds
        lines = _decoded(self.folder / METRICS, lambda text: [json.loads(line) for line in text.splitlines()])
        return pd.DataFrame(lines)

    @cached_property
    def messages(self) -> pd.DataFrame:
        import pandas as pd

        from seedbus.bus import Fate, Kind, read_ledger
        from seedbus.bus.errors import LedgerDamaged

        traffic = self.summary["traffic"]
        folder, expected = self.folder / MESSAGES, sum(traffic["fates"].values()) + traffic["transport"]["rows"]
        frame = pd.DataFrame(read_ledger(folder))
        if len(frame) != expected:
            raise LedgerDamaged(str(folder), f"holds {len(frame):,} of {expected:,} messages")
        frame["kind"] = frame["kind"].map({int(kind): kind.name for kind in Kind})
        frame["fate"] = frame["fate"].map({int(fate): fate.name for fate in Fate})
        return frame


def strict(value: Any) -> Any:
    """The value for JSON, which knows neither NaN nor infinity: they become null."""
    if isinstance(value, dict):
        return {name: strict(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _decoded(path: Path, decode: Callable[[str], list[Any]]) -> list[dict[str, Any]]:
    try:
        found = decode(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunFolderError(path, f"it cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    if not all(isinstance(each, dict) for each in found):
        raise _damaged(path, "it holds other things than JSON objects")
    return found


def _damaged(path: Path, what: str) -> RunFolderError:
    mend = f"delete {RESULTS}, and `seedbus run --resume {path.parent}` writes it and {METRICS} again"
    return RunFolderError(path, f"it is damaged ({what}); {mend}")
