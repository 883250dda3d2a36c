"""What a node sends: commits once to those that may lack them, and summaries that are answered once."""

from __future__ import annotations

import itertools
from typing import Any

import msgpack
import numpy as np
import pytest

from seedbus.agents.gossip.node import Node, Steps, fold
from seedbus.agents.seeds import of_step
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import Envelope, Kind
from seedbus.bus.envelope import ARRAY_LIMIT, Tally
from seedbus.discovery import PluginError
from seedbus.models.partitions.iid import Iid
from seedbus.models.tasks.quadratic import Quadratic

ALGORITHM = DeComFL.model_validate({"arithmetic": "integer", "perturbations": 2}).sized(8)
PROBLEM = Quadratic(dimension=8).bind(seed=1, clients=4, partition=Iid())
STEPS = Steps(ALGORITHM, PROBLEM, 4, seed=1)
ALL = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


class RecordingBus:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Envelope, Tally]] = []

    def send(self, envelope: Envelope, tally: Tally) -> None:
        self.sent.append((envelope, tally))

    def take(self) -> list[tuple[Kind, int, int, bool]]:
        """Return what was sent since the last call: (kind, recipient, commits, whether they are catch-up)."""
        taken = [(each.kind, each.base, tally.seeds, tally.catchup_bytes > 0) for each, tally in self.sent]
        self.sent.clear()
        return taken


def node(address: int) -> tuple[Node, Any]:
    bus: Any = RecordingBus()
    return Node(address, ALL, STEPS, bus, ALGORITHM.replica(PROBLEM.x0()), seed=1), bus


def records(origin: int, count: int) -> list[Any]:
    replica = ALGORITHM.replica(PROBLEM.x0())
    return [STEPS.measure(origin, number, number, replica) for number in range(count)]


def test_a_commit_goes_on_once_to_all_neighbours_but_the_sender() -> None:
    this, bus = node(0)
    for sender in (2, 3):
        this.handle(Envelope(Kind.FLOOD, sender, 0, 0, records(1, 2)))
    assert bus.take() == [(Kind.FLOOD, 1, 2, False), (Kind.FLOOD, 3, 2, False)]
    assert this.missed == 2


def test_each_step_has_a_seed_of_its_own_and_is_measured_on_the_data_of_its_node_and_round() -> None:
    asked = []

    class Asked:
        x0 = staticmethod(PROBLEM.x0)

        def objective(self, node: int, round: int) -> Any:
            asked.append((node, round))
            return PROBLEM.objective(node, round)

    problem: Any = Asked()
    steps, replica = Steps(ALGORITHM, problem, 4, seed=1), ALGORITHM.replica(PROBLEM.x0())
    pairs = list(itertools.product(range(4), range(3)))
    commits = [steps.commit(steps.measure(origin, round, round, replica)) for origin, round in pairs]
    assert asked == pairs
    assert len({term.seed for commit in commits for term in commit.terms}) == len(pairs)


def test_an_algorithm_whose_clients_remember_something_is_refused_because_no_node_would_keep_it() -> None:
    class Remembering(DeComFL):
        def local(self, *args: Any) -> Any:
            return super().local(*args)[0], [1]

    algorithm = Remembering(**ALGORITHM.model_dump()).sized(PROBLEM.dimension)
    steps = Steps(algorithm, PROBLEM, 4, 1)
    with pytest.raises(PluginError, match="a client of decomfl remembers something; without a server"):
        steps.measure(0, 0, 0, algorithm.replica(PROBLEM.x0()))


def test_a_round_in_which_all_nodes_commit_moves_the_model_by_the_mean_of_their_steps() -> None:
    steps, start, moved = Steps(ALGORITHM, PROBLEM, 4, seed=1), *(ALGORITHM.replica(PROBLEM.x0()) for _ in range(2))
    plans = [ALGORITHM.plan(3, 0, of_step(1, node, 3)) for node in range(4)]
    own = [ALGORITHM.trained(start, None, plan, PROBLEM.objective(node, 3)) for node, plan in enumerate(plans)]
    fold(moved, steps, [steps.measure(node, 0, 3, start) for node in range(4)])
    assert moved.version == 4
    np.testing.assert_allclose(ALGORITHM.point(moved), np.mean(own, axis=0), rtol=1e-6)
    assert np.linalg.norm(np.mean(own, axis=0) - PROBLEM.x0()) > 1e-3


def test_a_summary_is_answered_by_the_commits_that_it_lacks_as_catch_up() -> None:
    (this, bus), (other, _) = node(0), node(1)
    this.add(records(0, ARRAY_LIMIT + 1))
    bus.take()
    this.handle(Envelope(Kind.HAVE, 1, 0, 0, [*other.has.summary(), False]))
    for envelope, tally in bus.sent:
        assert tally.catchup_bytes == len(msgpack.packb(envelope.body)) and tally.scalars == 2 * tally.seeds
    assert bus.take() == [(Kind.FLOOD, 1, ARRAY_LIMIT, True), (Kind.FLOOD, 1, 1, True)]


def test_a_summary_is_answered_by_ones_own_where_one_lacks_commits_and_an_answer_never_is() -> None:
    (this, bus), (other, _) = node(0), node(1)
    other.add(records(1, 1))
    this.handle(Envelope(Kind.HAVE, 1, 0, 0, [*other.has.summary(), False]))
    (answer, _) = bus.sent[0]
    assert bus.take() == [(Kind.HAVE, 1, 0, False)] and answer.body[-1] is True
    this.handle(Envelope(Kind.HAVE, 1, 0, 0, [*other.has.summary(), True]))
    assert bus.take() == []


def test_another_neighbour_is_told_in_another_round_and_by_another_node() -> None:
    places = []
    for address, (this, bus) in enumerate(map(node, range(4))):
        for this.round in range(20):
            this.tell_one()
        places.append([ALL[address].index(recipient) for _, recipient, _, _ in bus.take()])
    assert all(set(each) == {0, 1, 2} for each in places)
    assert len(set(map(tuple, places))) == 4, "each draws by itself"


def test_a_node_that_returns_tells_all_its_neighbours() -> None:
    this, bus = node(2)
    this.tell_all()
    assert bus.take() == [(Kind.HAVE, neighbour, 0, False) for neighbour in ALL[2]]
