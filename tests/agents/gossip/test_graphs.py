"""The graphs between nodes."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seedbus.agents.gossip import graphs
from seedbus.agents.gossip.settings import Gossip


@settings(max_examples=25)
@given(st.integers(3, 40), st.integers(2, 9), st.integers(0, 9))
def test_a_regular_graph_is_connected_and_each_node_has_as_many_neighbours(nodes: int, degree: int, seed: int) -> None:
    assume(degree < nodes and nodes * degree % 2 == 0)
    edges = graphs.regular(nodes, degree, seed)
    assert {len(beside) for beside in graphs.neighbours(edges, nodes)} == {degree}
    assert graphs.is_connected(edges, nodes)
    assert edges == graphs.regular(nodes, degree, seed)


def test_regular_graphs_of_different_seeds_differ() -> None:
    assert len({frozenset(graphs.regular(20, 4, seed)) for seed in range(5)}) == 5


@pytest.mark.parametrize(
    ("graph", "nodes", "degrees"),
    [
        ("ring", 7, {2}),
        ("ring", 2, {1}),
        ("torus", 12, {4}),
        ("torus", 4, {2}),
        ("torus", 6, {3}),
        ("complete", 5, {4}),
    ],
)
def test_other_graphs_have_the_neighbours_that_their_names_promise(graph: str, nodes: int, degrees: set[int]) -> None:
    beside = Gossip.model_validate({"graph": graph}).neighbours(nodes, seed=1)
    assert {len(each) for each in beside} == degrees
    assert all(node in beside[other] for node, others in enumerate(beside) for other in others)
