"""Joining over the wire: only a process with the run's directions, arithmetic and x₀ is admitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clusters import ClientsThread, ServerThread
from worlds import lossy

from seedbus.agents.client.worker import Followers
from seedbus.agents.errors import JoinRefused
from seedbus.agents.observer import NullObserver
from seedbus.bus import HostRequest, Offer
from seedbus.bus.transport import Follower
from seedbus.bus.zeromq import Joining, follow
from seedbus.scenarios.running.prepare import bind, recruit
from seedbus.scenarios.running.run import run


def recruit_with_proof(what: Any, selftest: bytes | None = None, x0: bytes | None = None) -> Any:
    """Return a function that makes followers with a false proof."""
    make_followers = recruit(what, bind(what), NullObserver())

    def make(offer: Offer) -> Follower:
        followers = make_followers(offer)
        assert isinstance(followers, Followers)
        shown = {"selftest": selftest, "x0": x0}
        followers.host._proof = {**followers.host._proof, **{name: each for name, each in shown.items() if each}}
        return followers

    return make


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("proof", "sentence"),
    [
        ({"selftest": b"x" * 16}, r"\(selftest\): its directions or arithmetic differ .* another build"),
        (
            {"x0": b"x" * 8},
            r"\(x0\): its x₀ has digest 7878787878787878, the run's [0-9a-f]{16}: other data, or another task, seed",
        ),
    ],
)
def test_a_process_that_would_compute_other_bits_is_refused_by_name(
    tmp_path: Path, proof: dict[str, bytes], sentence: str
) -> None:
    what = lossy(stop={"rounds": 20})
    reference = run(what, tmp_path / "whole")
    with ServerThread(what, tmp_path / "run") as server:
        endpoint = server.watcher.endpoint
        first = ClientsThread(what, endpoint, HostRequest(((0, 3),)))
        while not server.watcher.joined:
            first.join(0.01)
        with pytest.raises(JoinRefused, match=sentence):
            follow(Joining(endpoint, HostRequest(((4, 7),))), recruit_with_proof(what, **proof))
        ClientsThread(what, endpoint, HostRequest(((4, 7),)))
        results = server.results()
    assert results.digest == reference.digest
    (reason,) = proof
    assert results.summary["refusals"][reason] == {"-4": 1}


def test_the_first_process_must_have_the_servers_self_test(tmp_path: Path) -> None:
    what = lossy(stop={"rounds": 5})
    with ServerThread(what, tmp_path / "run") as server:
        with pytest.raises(JoinRefused, match="another build"):
            follow(Joining(server.watcher.endpoint), recruit_with_proof(what, selftest=b"x" * 16))
        ClientsThread(what, server.watcher.endpoint)
        assert server.results().summary["rounds"] == 5
