"""The graphs that nodes are connected by: undirected, connected, without loops; drawn by key where they are random."""

from __future__ import annotations

import math
from collections.abc import Iterable

from seedbus.bus.keyed_random import below

Edge = tuple[int, int]
SWAPS = 10
"""How often a random graph's edges are swapped, on average."""


def ring(nodes: int) -> set[Edge]:
    """Return the edges of a circle."""
    return {_edge(node, (node + 1) % nodes) for node in range(nodes)}


def torus(nodes: int) -> set[Edge]:
    """Return the edges of a grid that is closed at its borders, as nearly square as possible.

    Raises:
        ValueError: the number of nodes is a prime.
    """
    rows = next(rows for rows in range(math.isqrt(nodes), 0, -1) if nodes % rows == 0)
    if rows == 1:
        raise ValueError(f"a torus of {nodes} nodes is no grid of two rows or more; {max(4, nodes + 1)} are accepted")
    columns = nodes // rows
    right = {_edge(node, node - node % columns + (node + 1) % columns) for node in range(nodes)}
    return right | {_edge(node, (node + columns) % nodes) for node in range(nodes)}


def complete(nodes: int) -> set[Edge]:
    """Return all edges."""
    return {(node, other) for other in range(nodes) for node in range(other)}


def regular(nodes: int, degree: int, seed: int) -> set[Edge]:
    """Return a random connected graph in which each node has `degree` neighbours.

    Pairs of edges of a circulant graph are swapped at random, ten times as often as there are edges, and further until
    the graph is connected. seed: keys the draws.

    Raises:
        ValueError: there is no such graph.
    """
    if not 2 <= degree < nodes or nodes * degree % 2:
        accepted = f"2 to {nodes - 1} are accepted" if nodes > 2 else "graph: ring and complete are accepted"
        even = ", even ones" if nodes % 2 else ""
        raise ValueError(f"no connected graph of {nodes} nodes has degree {degree}; {accepted}{even}")
    edges = [_edge(node, (node + step) % nodes) for step in range(1, degree // 2 + 1) for node in range(nodes)]
    if degree % 2:
        edges += [(node, node + nodes // 2) for node in range(nodes // 2)]
    taken, draw = set(edges), 0
    while draw < SWAPS * len(edges) or not is_connected(taken, nodes):
        draw += 1
        one, other = (below(len(edges), seed, "swap", draw, which) for which in ("one", "other"))
        (a, b), (c, d) = edges[one], edges[other]
        if below(2, seed, "swap", draw, "turn"):
            c, d = d, c
        new = _edge(a, c), _edge(b, d)
        if len({a, b, c, d}) == 4 and not taken & set(new):
            taken -= {edges[one], edges[other]}
            taken |= set(new)
            edges[one], edges[other] = new
        if draw > 100 * SWAPS * len(edges):  # a circle of three or four nodes has nothing to swap
            break
    return taken


def is_connected(edges: Iterable[Edge], nodes: int) -> bool:
    return len(reached(edges, nodes)) == nodes


def reached(edges: Iterable[Edge], nodes: int) -> set[int]:
    """Return the nodes that edges connect with node 0."""
    beside, found, pending = neighbours(edges, nodes), {0}, [0]
    while pending:
        new = set(beside[pending.pop()]) - found
        found |= new
        pending += new
    return found


def neighbours(edges: Iterable[Edge], nodes: int) -> list[list[int]]:
    """Return the neighbours of each node, ascending."""
    beside: list[list[int]] = [[] for _ in range(nodes)]
    for node, other in edges:
        beside[node].append(other)
        beside[other].append(node)
    return [sorted(each) for each in beside]


def _edge(node: int, other: int) -> Edge:
    return (node, other) if node < other else (other, node)
