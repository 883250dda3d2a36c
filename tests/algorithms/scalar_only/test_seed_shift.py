"""The private shift of seeds: followers agree on directions that the server cannot compute."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from hashlib import scrypt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command
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


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that this process's user has named."""
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_bytes(SECRETS[0])
    monkeypatch.setenv("SEEDBUS_SEED_SECRET", str(path))
    return path


def test_a_run_with_a_secret_is_another_run_which_only_the_secret_replays(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what, plain = scenario(seed_shift=True), run(scenario(), tmp_path / "plain")
    hidden = run(what, tmp_path / "hidden")
    assert hidden.digest == replay(tmp_path / "hidden").digest != plain.digest
    bytes_of = [each.summary["traffic"]["by_kind"]["report"]["bytes"] for each in (hidden, plain)]
    assert bytes_of[0] == bytes_of[1] and not hidden.summary["refusals"]  # and no digest differs
    secret.write_bytes(SECRETS[1])
    assert replay(tmp_path / "hidden").digest != hidden.digest
    for content, found in ((b"short", "5 bytes"), (bytes(65), "65 bytes")):
        secret.write_bytes(content)
        with pytest.raises(ScenarioError, match=f"has {found}; a secret of 16 to 64 bytes is accepted"):
            replay(tmp_path / "hidden")
    monkeypatch.delenv("SEEDBUS_SEED_SECRET")
    with pytest.raises(ScenarioError, match=r"has no secret to shift seeds by; name the file .* by --seed-secret FILE"):
        run(what, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_neither_a_guess_of_the_file_nor_a_run_of_another_task_tells_a_servers_seeds(secret: Path) -> None:
    """A guess costs scrypt, whose parameters this tells; a known gradient in another run tells nothing of this one."""
    changes: dict[str, dict[str, Any]] = {
        "this run": {},
        "again": {},
        "another seed": {"seed": 2},
        "another task": {"task": {"name": "null", "dimension": 300}},
        "another d": {"task": {"name": "quadratic", "dimension": 301}},
    }
    keys = {}
    for name, changed in changes.items():
        what = scenario(seed_shift=True, **changed)
        clients: Any = followed(what, what.task.bind(seed=1, clients=8, partition=Iid()))
        keys[name] = clients._seed(77)
    assert keys.pop("again") == keys["this run"]
    guessed = DeComFL().shifted(SECRETS[0])._seed(77)
    assert len({*keys.values(), guessed, 77}) == len(keys) + 2
    stretched = scrypt(
        SECRETS[0], salt=b"seeds of quadratic, d = 300, seed 1", n=2**15, r=8, p=3, maxmem=2**26, dklen=32
    )
    assert DeComFL().shifted(stretched)._seed(77) == keys["this run"]


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_worker_processes_read_the_secret_themselves(tmp_path: Path, secret: Path) -> None:
    what = scenario(seed_shift=True)
    assert outcome(run(what, tmp_path / "tcp", placement=Placement("tcp", 2))) == outcome(run(what, tmp_path / "one"))


def _pipe(secret: Path) -> None:
    secret.unlink()
    os.mkfifo(secret, 0o600)  # opening it to read would wait for ever


def _device(secret: Path) -> None:
    secret.unlink()
    secret.symlink_to("/dev/zero")


def _link(secret: Path) -> None:
    """It leads into a folder into which others may write."""
    theirs = secret.parent / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    secret.rename(theirs / "secret")
    secret.symlink_to(theirs / "secret")


def _circle(secret: Path) -> None:
    secret.unlink()
    secret.symlink_to(secret)


UNTRUSTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (_pipe, "secret is a pipe; expected a file"),
    "a device": (_device, "zero is a device; expected a file"),
    "a folder of others": (_link, "others may write its folder .*theirs .mode 777.; expected `chmod go-w .*theirs`"),
    "a link to itself": (_circle, "cannot be read here"),
    "readable by others": (lambda secret: secret.chmod(0o640), "others may read it .mode 640.; expected mode 600"),
    "of another user": (lambda secret: os.chown(secret, 4242, -1), "it belongs to user 4242; expected one of user 0"),
    "of megabytes": (lambda secret: os.truncate(secret, 2**24), "it has more than 4,096 bytes"),
    "absent": (Path.unlink, "cannot be read here .No such file or directory.; name the file of the clients' secret"),
}


@pytest.mark.parametrize("kind", UNTRUSTED)
def test_a_secret_that_others_can_read_or_change_is_refused_in_a_sentence(
    kind: str, secret: Path, seedbus: Command
) -> None:
    change, sentence = UNTRUSTED[kind]
    if kind == "of another user" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    change(secret)
    said = seedbus("run", "decomfl-digits", "--set", "seed_shift=true", "--out", secret.parent / "run", "-q")
    assert said.code == 2 and said.err.startswith("seedbus: seed_shift: ") and said.err.count("\n") == 1, said.err
    assert re.search(sentence, said.err), said.err
    assert not (secret.parent / "run").exists()
