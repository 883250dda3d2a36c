"""What a run without a server cannot have: whatever needs one, and whatever is not a sum."""

from __future__ import annotations

from typing import Any

from seedbus.agents.availability import AvailabilityFault
from seedbus.agents.client.forging import Forge
from seedbus.agents.client.tampering import Tamper
from seedbus.agents.gossip.settings import Gossip
from seedbus.agents.server.collusion import Collude
from seedbus.agents.server.outages import Outage
from seedbus.bus import KeyedRandom
from seedbus.bus.envelope import BETWEEN
from seedbus.scenarios.schema.expectations import VERIFIED_PREFIX

KINDS = [kind.name.lower() for kind in BETWEEN]
OF_SERVER = {
    "lag": "no node is sent snapshots",
    "secure_aggregation": "each node adds up single steps",
    "privacy": "each node sees single steps",
    "seed_shift": "seeds are not sent",
}
OF_REPORTS = {
    *("bytes_down", "heard_share", "late_share", "rounds_at_deadline", "stragglers_share", "in_vain_share"),
    *("commits_with_false_reports", "commits_beyond_rule"),
    *(f"staleness_{each}" for each in ("max", "mean", "p95")),
}
"""The figures of reports to a server, and of what it sends, which are 0 without one."""


def refuse_server(scenario: Any, gossip: Gossip) -> None:
    """Raise `ValueError` if a `Scenario` with this `topology` needs a server, or is not a sum."""
    algorithm, who = scenario.algorithm, scenario.participation
    if getattr(algorithm, "arithmetic", "float") != "integer":
        raise ValueError(
            f"topology: gossip adds up commits in any order, and those of algorithm {algorithm.name} are no exact sum "
            "with these settings; decomfl, fedscalar-shared and a plug-in's scalar-only algorithm whose update is a "
            "sum are accepted with arithmetic: integer"
        )
    if not getattr(algorithm, "has_round_seeds", False):
        raise ValueError(
            f"topology: gossip needs steps with one seed each, and those of algorithm {algorithm.name} have none; "
            "decomfl and fedscalar-shared with arithmetic: integer are accepted"
        )
    if algorithm.aggregation.rule != "mean":
        raise ValueError(
            f"algorithm.aggregation: {algorithm.aggregation.rule} compares the reports of a round, and with topology: "
            "gossip no one has them all; mean is accepted"
        )
    for field, why in OF_SERVER.items():
        if getattr(scenario, field):
            raise ValueError(f"{field}: with topology: gossip {why}; leave {field} out")
    for field in sorted(who.model_fields_set):  # a stream fills in others
        if field != "clients" and getattr(who, field) != type(who).model_fields[field].default:
            raise ValueError(f"participation.{field}: with topology: gossip each node takes part; leave {field} out")
    if scenario.clock == "wall":
        raise ValueError("clock: wall: topology: gossip runs in simulated time; virtual is accepted")
    if scenario.verify_every != 1:
        raise ValueError("verify_every: with topology: gossip nodes are compared at the end; leave verify_every out")
    for field in ("shared_up_mbps", "shared_down_mbps"):
        if getattr(scenario.network, field) is not None:
            raise ValueError(f"network.{field} is the server's, and topology: gossip has none; leave {field} out")
    for name in sorted(scenario.expect):
        if name not in OF_REPORTS and not name.startswith(VERIFIED_PREFIX):
            continue
        raise ValueError(f"expect.{name}: with topology: gossip no node reports to a server; leave {name} out")
    if gossip.evaluated >= who.clients:
        raise ValueError(f"topology.evaluated is {gossip.evaluated}; nodes are 0 to {who.clients - 1}")
    gossip.neighbours(who.clients, scenario.seed)
    for number, (fault, random) in enumerate(scenario.faults_with_draws):
        reason = needs_server(fault, who.clients, random)
        if reason is not None:
            raise ValueError(f"faults.{number}: with topology: gossip {reason}")


def needs_server(fault: Any, nodes: int, random: KeyedRandom) -> str | None:
    """Return why a fault cannot strike nodes; None if it can."""
    if isinstance(fault, Outage):
        return "there is no server to crash; leave it out"
    if isinstance(fault, Tamper | Forge | Collude):
        return "it has no answers to a server to falsify; leave it out"
    if isinstance(fault, AvailabilityFault) and fault.returns != "with-state":
        return f"returns is {fault.returns}: a node would number its commits anew; with-state is accepted"
    if getattr(fault, "direction", "both") != "both":
        return f"direction is {fault.direction}: between nodes there is no up and down; both is accepted"
    if getattr(fault, "kind", None) not in (None, *KINDS):
        return f"kind is {fault.kind}, which nodes do not send; {' and '.join(KINDS)} are accepted"
    is_partition = getattr(fault, "fault", None) == "partition"
    if is_partition and fault.probability == 1 and len(list(fault.chosen(nodes, random))) == nodes:
        return "a partition of all nodes cuts none off; name some of them in clients, or a fraction"
    return None
