"""The private shift of seeds: followers agree on directions that the server cannot compute."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from worlds import outcome, scenario

from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.models.partitions.iid import Iid
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.prepare import followed
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

SECRETS = b"0123456789abcdef", b"0123456789abcdeg"


def test_each_secret_has_its_own_seeds_and_plans_and_commits_agree_on_them() -> None:
    server = DeComFL(perturbations=3)
    plan = server.plan(0, 0, 77)
    packed = server.pack_plan(plan).body
    one, other = (server.shifted(secret).unpack_plan(packed, 0, 0).seed for secret in SECRETS)
    assert len({one, other, plan.seed}) == 3
    commit, _ = server.aggregate(None, plan, {0: np.ones((1, 3), np.float32)})
    (shifted,) = server.shifted(SECRETS[0]).unpack_commits(server.pack_commits([commit]).body)
    assert [term.seed for term in shifted.terms] == [one]
    assert server.unpack_commits(server.pack_commits([commit]).body)[0].terms[0].seed == plan.seed


def test_a_run_with_a_secret_is_another_run_which_only_the_secret_replays(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRETS[0])
    what, plain = scenario(seed_shift=str(secret)), run(scenario(), tmp_path / "plain")
    hidden = run(what, tmp_path / "hidden")
    assert hidden.digest == replay(tmp_path / "hidden").digest != plain.digest
    bytes_of = [each.summary["traffic"]["by_kind"]["report"]["bytes"] for each in (hidden, plain)]
    assert bytes_of[0] == bytes_of[1] and not hidden.summary["refusals"]  # and no digest differs
    secret.write_bytes(SECRETS[1])
    assert replay(tmp_path / "hidden").digest != hidden.digest
    secret.write_bytes(b"short")
    with pytest.raises(ScenarioError, match="has 5 bytes; a secret of 16 to 64 bytes is accepted"):
        replay(tmp_path / "hidden")
    secret.write_bytes(bytes(65))
    with pytest.raises(ScenarioError, match="has more than 64 bytes; a secret of 16 to 64 bytes is accepted"):
        replay(tmp_path / "hidden")
    secret.unlink()
    with pytest.raises(ScenarioError, match="cannot be read here"):
        run(what, tmp_path / "none")


@pytest.mark.slow
def test_worker_processes_read_the_secret_themselves(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRETS[0])
    what = scenario(seed_shift=str(secret))
    assert outcome(run(what, tmp_path / "tcp", placement=Placement("tcp", 2))) == outcome(run(what, tmp_path / "one"))


@pytest.mark.parametrize("name", ["/", "a\0b"])
def test_a_name_that_no_file_has_is_quoted_in_a_sentence(name: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(f"{json.dumps(name)} cannot be read here (")):
        followed(scenario(seed_shift=name), scenario().task.bind(seed=1, clients=8, partition=Iid()))


def test_no_more_of_a_file_is_read_than_a_secret_may_have(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="/dev/zero has more than 64 bytes"):
        followed(scenario(seed_shift="/dev/zero"), scenario().task.bind(seed=1, clients=8, partition=Iid()))


def test_a_pool_of_seeds_has_none_to_shift() -> None:
    with pytest.raises(ScenarioError, match="algorithm fedkseed has none"):
        scenario(seed_shift="secret", algorithm={"name": "fedkseed"})


def test_the_server_is_not_handed_the_model_that_it_is_not_to_find() -> None:
    with pytest.raises(ScenarioError, match="snapshots of the model pass through the server, from which seed_shift"):
        scenario(seed_shift="secret", lag={"snapshot_after_commits": 3})
