"""The model that an owner keeps: exported and applied from her own folder, whatever ends her process."""

from __future__ import annotations

import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from commands import Command
from owner_processes import federation
from owners import own_scenario
from processes import kill, wait_for

import seedbus as api
from seedbus.agents.errors import RunFolderError
from seedbus.algorithms.contract import Replica
from seedbus.scenarios.consent import own_model
from seedbus.scenarios.consent.own_model import BEFORE, FILE, OwnModel, read_model
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import Scenario

WHAT = load(own_scenario())
PERSON: dict[str, Any] = {"age": 66, "sex": "female"}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "decomfl": own_scenario()["algorithm"],
    "hiso": {"name": "hiso", "learning_rate": 0.05, "perturbations": 3},
    "fedavg": {"name": "fedavg", "learning_rate": 0.1, "weighting": "uniform"},
}


def replica(version: int) -> Replica:
    return Replica(version, {"x": np.full(WHAT.task.dimension, 1 / (1 + version), np.float32)})


def keeps(folder: Path, *versions: int, what: Scenario = WHAT, ends_at_work: bool = False) -> list[str]:
    """Keep models of these versions as one process does, and return what it told."""
    told: list[str] = []
    model = OwnModel(folder, what, lambda event, **facts: told.append(facts["what"]))

    def follow() -> None:
        for version in versions:
            model.reached(0, version, replica(version))

    if ends_at_work:
        follow()
    else:
        with ThreadPoolExecutor(1) as followers:
            followers.submit(follow).result()
    model.close()
    return told


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_owner_exports_and_applies_the_servers_model_from_her_own_folder(
    algorithm: str, tmp_path: Path, seedbus: Command
) -> None:
    with federation(tmp_path, algorithm=ALGORITHMS[algorithm]) as here:
        owners = [here.owner(number, "--out", f"mine{number}") for number in range(3)]
        assert here.ends(here.server(), *owners) == [0, 0, 0, 0], [here.said(f"owner{number}") for number in range(3)]
        for number in range(3):
            mine, file = tmp_path / f"mine{number}", tmp_path / f"{number}.safetensors"
            told = seedbus("export", mine, "--out", file)
            assert f"round 5, version 5: digest {here.digest()}" in told.out, told.err
            assert mine.stat().st_mode & 0o777 == 0o700
            assert all(each.stat().st_mode & 0o777 == 0o600 for each in mine.iterdir()), [*mine.iterdir()]
        seedbus("export", tmp_path / "run", "--out", tmp_path / "served.safetensors")
        assert api.predict(file, [PERSON]).equals(api.predict(tmp_path / "served.safetensors", [PERSON]))
        with pytest.raises(ScenarioError, match="an owner's, with the model after 5 rounds alone; expected 5, or none"):
            api.replay(mine, 4)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
def test_an_owner_who_is_ended_has_a_model_of_the_run_and_goes_on_with_it(how: signal.Signals, tmp_path: Path) -> None:
    policy = {"clients": 3, "cohort": 3, "quorum": 2, "deadline_s": 2.0, "every_s": 0.05}
    with federation(tmp_path, clock="wall", participation=policy, stop={"rounds": 60}) as here:
        server = here.server()
        others = [here.owner(number) for number in (1, 2)]
        first = here.owner(0, "--out", "mine")
        here.goes_on(rounds=9)
        wait_for(lambda: (tmp_path / "mine" / FILE).is_file())
        kill(first.pid, how)
        here.ends(first)
        model = api.replay(tmp_path / "mine")
        second = here.owner(0, "--out", "mine", name="second")
        assert here.ends(server, second, *others) == [0, 0, 0, 0], here.said("second")
        assert 0 < model.round < 60
        assert api.replay(tmp_path / "run", model.round).digest == model.digest
        assert api.replay(tmp_path / "mine").digest == here.digest()
        assert BEFORE not in here.said("second")


@pytest.mark.parametrize("place", [0, 40, -1])
def test_a_damaged_model_is_named_and_set_aside_by_the_next_process(place: int, tmp_path: Path) -> None:
    keeps(tmp_path, 3)
    assert api.replay(tmp_path).digest == replica(3).digest()
    path = tmp_path / FILE
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    for damaged in (bytes(content), bytes(content[:place]), b""):
        path.write_bytes(damaged)
        with pytest.raises(RunFolderError, match=f"{FILE}: the model is damaged"):
            api.replay(tmp_path)
    (told,) = keeps(tmp_path, 4)
    assert f"is now {BEFORE} beside it" in told and "the model is damaged" in told
    assert api.replay(tmp_path).round == 4


def test_a_process_that_ends_while_it_writes_leaves_the_model_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps(tmp_path, 3)
    with monkeypatch.context() as patched:
        patched.setattr(own_model, "little", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            keeps(tmp_path, 4)
    assert (tmp_path / f"{FILE}.unfinished").exists()
    assert read_model(tmp_path).replica.version == 3
    assert keeps(tmp_path, 5) == [] and read_model(tmp_path).replica.version == 5


def test_a_model_of_other_terms_or_of_a_later_version_is_set_aside_and_none_is_lost(tmp_path: Path) -> None:
    keeps(tmp_path, 3)
    renamed = load(own_scenario(name="others"))
    assert keeps(tmp_path, 3, 4, what=renamed) == [], "a name is no term"
    for version, what, why in (
        (2, WHAT, "it is of version 4, and the run is at 2"),
        (9, load(own_scenario(stop={"rounds": 9})), "stop.rounds is 9, accepted is 5"),
    ):
        before = (tmp_path / FILE).read_bytes()
        (told,) = keeps(tmp_path, version, what=what)
        assert why in told
        assert (tmp_path / BEFORE).read_bytes() == before and read_model(tmp_path).replica.version == version


def test_of_a_model_that_takes_long_to_write_the_last_is_kept_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_model, "SPARED", 10**9)
    keeps(tmp_path, 1, 2, 3, ends_at_work=True)
    assert read_model(tmp_path).round == 1, "the third may be changing"
    keeps(tmp_path, 4, 5, 6)
    assert read_model(tmp_path).round == 6


def test_a_model_that_cannot_be_written_is_told_and_ends_nothing(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path)
    told = keeps(tmp_path, 1)
    assert told[0] == f"{tmp_path / FILE}: the model cannot be written (No such file or directory)"
