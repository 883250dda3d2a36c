"""A run is kept by the content of the files that its scenario names: after a change of the data it is another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import worlds

from seedbus.models.data.content import content_digest
from seedbus.models.errors import DataError
from seedbus.models.tasks.image_folder import ImageFolder
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.loading import load, validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.study import store
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.provenance import provenance
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.store import Store, StoredRun, key
from seedbus.studies.study.worker import make_run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text("a,b,c\n" + "".join(f"{row},{row * row % 7},{'xy'[row % 2]}\n" for row in range(40)))
    return path


def on(table: Path) -> Scenario:
    document: dict[str, Any] = {
        "name": "mine",
        "task": {"name": "table", "file": str(table), "target": "c", "hidden": []},
        "algorithm": {"name": "fedavg"},
        "participation": {"clients": 2},
        "stop": {"rounds": 1},
    }
    return validate(document, "mine")


def test_a_run_on_changed_data_is_another_run(table: Path) -> None:
    before = key(on(table))
    text = table.read_text()
    table.write_text(text.replace("1,1,y", "1,2,y"))
    after = key(on(table))
    table.write_text(text)
    assert before != after and key(on(table)) == before


def test_the_folder_of_a_study_names_files_beside_the_study_as_this_may_and_they_are_the_same_runs(
    table: Path, tmp_path: Path
) -> None:
    fields = on(table).resolved() | {"task": {"name": "table", "file": "table.csv", "target": "c", "hidden": []}}
    document = {"base": fields, "variants": {"a": [], "b": {"stop.rounds": 2}}}
    (tmp_path / "mine.yaml").write_text(dump(document))
    plan = plan_of(tmp_path / "mine.yaml", [f"task={{name: table, file: {table}, target: c, hidden: []}}"])
    told = provenance(StudyResults(tmp_path, plan, "loss", {"a": [], "b": []}))
    assert told["settings"] == ["task={name: table, file: table.csv, target: c, hidden: []}"]
    for cell in plan.cells:
        kept = told["scenarios"][cell.name]
        assert cell.scenario.resolved()["task"]["file"] == str(table) and kept["task"]["file"] == "table.csv"
        (tmp_path / "again.yaml").write_text(dump(kept))
        assert key(load(tmp_path / "again.yaml")) == key(cell.scenario)


def test_a_run_whose_data_changes_while_its_study_goes_on_is_a_failure(table: Path, tmp_path: Path) -> None:
    stored: StoredRun = Store(tmp_path / "studies").stored(on(table))
    table.write_text(table.read_text().replace("1,1,y", "1,2,y"))
    facts = {"scenario": stored.scenario.resolved(), "folder": str(stored.folder), "parts": []}
    with pytest.raises(
        ScenarioError, match="a file that it names, such as its data, has changed since the study began"
    ):
        make_run(facts | {"launch": None, "track": None}, lambda _: None)
    assert not stored.has_begun


def test_a_study_reads_its_data_once_for_all_runs_and_each_run_looks_again(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def noticed(places: Any) -> str:
        seen.append(places)
        return content_digest(places)

    monkeypatch.setattr(store, "content_digest", noticed)
    kept = Store(tmp_path / "studies")
    runs = [kept.stored(on(table).model_copy(update={"seed": seed})) for seed in (1, 2, 3)]
    assert len(seen) == 1 and len({run.folder for run in runs}) == 3
    for run in runs:
        run.check_files()
    table.write_text(table.read_text().replace("1,1,y", "1,2,y"))
    for run in runs:
        with pytest.raises(ScenarioError, match="has changed since the study began"):
            run.check_files()
    assert Store(kept.folder).stored(runs[0].scenario).folder != runs[0].folder, "the next study"


def test_a_run_with_another_secret_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    scenario = worlds.scenario(seed_shift=True)
    keys = {key(scenario)}  # of a machine without it: only the nodes of a cluster may have it
    monkeypatch.setenv("SEEDBUS_SEED_SECRET", str(secret))
    for content in (b"0123456789abcdef", b"0123456789abcdeg"):
        secret.write_bytes(content)
        keys.add(key(scenario))
    assert len(keys) == 3


def test_what_a_task_names_counts_with_all_that_is_in_a_folder(tmp_path: Path) -> None:
    images, model = tmp_path / "images", tmp_path / "model"
    for path in (images / "cat" / "1.png", model / "config.json"):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"1")
    assert ImageFolder(folder=str(images)).named_files() == [images]
    assert LanguageModel(model=str(model)).named_files() == [model]
    assert not LanguageModel().named_files()
    digests = {content_digest([images, model])}
    for change in (
        lambda: (images / "cat" / "2.png").write_bytes(b"1"),
        lambda: (images / "cat").rename(images / "dog"),
    ):
        change()
        digests.add(content_digest([images, model]))
    assert len(digests) == 3
    (images / ".cache").write_bytes(b"1")
    moved = images.rename(tmp_path / "moved")
    assert content_digest([moved, model]) in digests


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"lost.*cannot be read \(No such file"):
        content_digest([tmp_path])


def test_a_link_that_leads_back_is_not_followed_again(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "picture").write_bytes(b"1")
    before = content_digest([tmp_path])
    for name in ("c", "d", "e"):
        (tmp_path / "b" / name).symlink_to(tmp_path)
    assert content_digest([tmp_path]) == before
    (tmp_path / "b" / "picture").write_bytes(b"22")
    assert content_digest([tmp_path]) != before
