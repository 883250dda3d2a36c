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


@pytest.mark.parametrize(
    ("fields", "nodes", "why"),
    [
        ({"graph": "torus"}, 7, "a torus of 7 nodes"),
        ({"graph": "torus"}, 2, "a torus of 2 nodes is no grid of two rows or more; 4 are accepted"),
        ({}, 2, "no connected graph of 2 nodes has degree 4; graph: ring and complete are accepted"),
        ({"degree": 3}, 5, "2 to 4 are accepted, even ones"),
        ({"degree": 9}, 8, "2 to 7 are accepted"),
        ({"degree": 2**63}, 5, "2 to 4 are accepted"),
        ({"graph": "ring"}, 1, "2 nodes or more"),
        ({"graph": "regular"}, 10**6, "regular of so many has 2,000,000 edges; at most 100,000 are accepted"),
        ({"graph": "complete"}, 10**6, "complete of so many has 499,999,500,000 edges; at most 100,000 are accepted"),
        ({"graph": "edges", "edges": [(0, 1), (2, 3)]}, 4, "do not connect node 2 with node 0"),
        ({"graph": "edges", "edges": [(0, 4)]}, 4, "two nodes of 0 to 3"),
    ],
)
def test_a_graph_that_is_not_possible_is_refused(fields: dict[str, object], nodes: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Gossip.model_validate(fields).neighbours(nodes, seed=1)
