"""Random scenarios without a server."""

from __future__ import annotations

from typing import Any

from seedbus.bus.keyed_random import with_random
from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.schema.topology_use import needs_server
from seedbus.scenarios.stress.draws import Chooser

_OF_NODES = {"direction": "both", "kind": None, "returns": "with-state"}
"""What these fields of a fault are between nodes."""
_SHARED = ("name", "seed", "task", "evaluation", "verify", "compute", "partition", "mask", "client_groups")


def without_server(choose: Chooser, drawn: dict[str, Any]) -> dict[str, Any]:
    """Return a scenario in which the clients of another are nodes; of its parts it has those that need no server."""
    nodes = max(2, drawn["participation"]["clients"])
    links = {name: None for name in ("shared_up_mbps", "shared_down_mbps")}
    return {name: drawn[name] for name in _SHARED if name in drawn} | {
        "algorithm": {
            "name": choose.one(("decomfl", "decomfl", "fedscalar-shared")),
            "perturbations": choose.whole(2, 5),
            "local_steps": choose.whole(1, 3),
            "learning_rate": choose.scale(1e-4, 1e-2),
            "arithmetic": "integer",
            "precision": choose.one(("float32", "float16", "int32")),
        },
        "participation": {"clients": nodes},
        "network": drawn.get("network", {}) | links,
        "stop": {name: value for name, value in drawn["stop"].items() if name != "epsilon"},
        "topology": _graph(choose, nodes)
        | {
            "interval_s": choose.scale(0.05, 10),
            "repair_every": choose.whole(1, 4),
            "repair_rounds": choose.one((0, 3, 100)),
            "evaluated": choose.whole(0, nodes - 1),
        },
        "faults": _between_nodes(drawn, nodes),
    }


def _graph(choose: Chooser, nodes: int) -> dict[str, Any]:
    graph = choose.one(("ring", "complete", "regular", "edges"))
    if graph == "edges":  # a tree, and some edges more
        edges = [[choose.whole(0, node - 1), node] for node in range(1, nodes)]
        edges += [[choose.whole(0, nodes - 2), nodes - 1] for _ in range(choose.whole(0, 3))]
        return {"kind": "gossip", "graph": graph, "edges": edges}
    if graph == "regular" and nodes > 2:
        return {"kind": "gossip", "graph": graph, "degree": 2 * choose.whole(1, (nodes - 1) // 2)}
    return {"kind": "gossip", "graph": "ring" if graph == "regular" else graph}


def _between_nodes(drawn: dict[str, Any], nodes: int) -> list[dict[str, Any]]:
    """Return the faults of a scenario that can strike nodes."""
    found = []
    for fault in drawn["faults"]:
        fault = fault | {name: value for name, value in _OF_NODES.items() if name in fault}
        ((checked, random),) = with_random([FAULTS.all()[fault["fault"]].model_validate(fault)], drawn["seed"], nodes)
        if needs_server(checked, nodes, random) is None:
            found.append(fault)
    return found
