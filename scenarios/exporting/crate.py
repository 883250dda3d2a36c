"""What an archive says of itself: an RO-Crate 1.2 (https://w3id.org/ro/crate/1.2), one file of JSON-LD.

It follows from the other files alone, all but its date, so whoever has these can make it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.head import HEAD
from seedbus.bus.files import descriptor
from seedbus.scenarios.reporting.findings import ANALYSIS
from seedbus.scenarios.reporting.page import PAGE
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import METRICS, RESULTS, SCENARIO, scenario_of

METADATA = "ro-crate-metadata.json"
LEDGER = "messages"
CONTENTS = {
    SCENARIO: ("the scenario, with the values of all fields", "application/yaml"),
    FILE: ("the journal: commits, evaluations and their chain of digests", "application/vnd.sqlite3"),
    HEAD: ("the number and the digest of the journal's last round", "application/octet-stream"),
    RESULTS: ("the results", "application/json"),
    METRICS: ("the evaluations", "application/jsonl"),
    PAGE: ("the page, with all plots", "text/html"),
    ANALYSIS: ("what instruments have measured", "application/json"),
}
"""The files of a run that an archive holds, if they are there; and the ledger's."""
NEEDED = (SCENARIO, FILE, HEAD, RESULTS, METRICS)
_LEDGER = ("a part of the ledger: a row for each message", "application/vnd.apache.parquet")
_PAGE = "https://w3id.org/ro/crate/1.2"
_CHUNK = 2**20


def members(folder: Path) -> list[str]:
    """Return the names of the files of a run that an archive holds, in their order in it."""
    ledger = sorted(f"{LEDGER}/{path.name}" for path in (folder / LEDGER).glob("*.parquet"))
    return [name for name in sorted(CONTENTS) if (folder / name).exists()] + ledger


def metadata(folder: Path, date: str) -> dict[str, Any]:
    """Return the content of `METADATA` for a finished run.

    Args:
        folder: the run's folder.
        date: when the run ended, as ISO 8601.

    Raises:
        RunFolderError, JournalDamaged, ScenarioError: a file cannot be read.
    """
    scenario = scenario_of(folder)
    results = Results.read(folder).summary
    versions = {"Seedbus": results["seedbus"], **results["versions"]}
    software = [_software(name, version) for name, version in versions.items()]
    files = [file_of(folder, name) for name in members(folder)]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": scenario.name,
        "description": scenario.description or f"A run of the scenario {scenario.name}, made by Seedbus",
        "datePublished": date,
        "license": "none is stated",
        "identifier": results["digest"],
        "hasPart": [{"@id": each["@id"]} for each in files],
        "mentions": {"@id": "#run"},
    }
    run = {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"the run, on {results['processor']}",
        "object": {"@id": SCENARIO},
        "result": [{"@id": each["@id"]} for each in files if each["@id"] != SCENARIO],
        "instrument": [{"@id": each["@id"]} for each in software],
    }
    itself = {"@id": METADATA, "@type": "CreativeWork", "conformsTo": {"@id": _PAGE}, "about": {"@id": "./"}}
    context = [f"{_PAGE}/context", {"sha256": "https://schema.org/sha256"}]
    return {"@context": context, "@graph": [itself, root, run, *software, *files]}


def entities(content: Any) -> dict[str, Any]:
    """Return what metadata say of each thing, by its name, and under "" all else; of other JSON as much as there is."""
    if not (isinstance(content, dict) and isinstance(graph := content.get("@graph"), list)):
        return {"": content}
    named, others = dict[str, Any](), list[Any]()
    for each in graph:
        name = each.get("@id") if isinstance(each, dict) else None
        if isinstance(name, str) and name and name not in named:
            named[name] = each
        else:
            others.append(each)
    return named | {"": {**content, "@graph": others}}


def text_of(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def made_with(folder: Path) -> str:
    """Return the versions and the processor of a run that was read already, in words."""
    results = Results.read(folder).summary
    versions = {"Seedbus": results["seedbus"], **results["versions"]}
    return f"{', '.join(f'{name} {version}' for name, version in versions.items())} on {results['processor']}"


def _software(name: str, version: Any) -> dict[str, Any]:
    return {"@id": f"#{name}", "@type": "SoftwareApplication", "name": name, "softwareVersion": str(version)}


def file_of(folder: Path, name: str) -> dict[str, Any]:
    """Return what the metadata say of one file. Raises `OSError` if it cannot be read."""
    description, form = CONTENTS.get(name, _LEDGER)
    size, digest = 0, hashlib.sha256()
    for chunk in chunks(folder / name):
        size += len(chunk)
        digest.update(chunk)
    entity = {"@id": name, "@type": "File", "description": description, "encodingFormat": form}
    return entity | {"contentSize": str(size), "sha256": digest.hexdigest()}


def chunks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file of a run, a megabyte at a time. Raises `OSError`, also for a link."""
    with open(path, "rb", opener=lambda _, flags: descriptor(path, flags)) as file:
        while chunk := file.read(_CHUNK):
            yield chunk
