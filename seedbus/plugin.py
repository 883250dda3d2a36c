"""What plug-ins are written against: the base classes of everything that a scenario can name.

A plug-in is a Python file with classes of its own, each a frozen pydantic model that extends one of these and has its
name as the default of one field:

    class Signs(ScalarOnly):
        name: Literal["signs"] = "signs"

It is loaded by `--plugin FILE.py`, by SEEDBUS_PLUGINS (files, separated as in PATH), as an installed package with an
entry point in the group `seedbus.plugins`, or in Python by `load_plugin`; `register` takes a class of a
notebook.

    algorithm    name      ScalarOnly, DeComFL, HiSo, FedAvg; or BaseAlgorithm, and the rest of Algorithm
    method       name      Method, which makes FedAvg a dense algorithm of that name
    codec        kind      Compression
    channel      kind      Channel
    rule         rule      Rule
    law          law       Law, the distribution of a direction's coordinates
    task         name      Task, whose `bind` returns a Problem
    partition    kind      Partition
    policy       policy    Selection
    fault        fault     MessageSelector, TrafficSelector, RoundSelector, ClientSelector, or Fault; AvailabilityFault
                           says what one has that keeps clients away
    tracker      tracker   Tracker, whose `begin` returns a TrackerRun; `--track` names it, no scenario does

Names in `__all__` change only with VERSION.
"""

from __future__ import annotations

from seedbus.agents.availability import AvailabilityFault
from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.selection import Selection
from seedbus.algorithms.aggregation.rules import Aggregation, Mean, Rule
from seedbus.algorithms.base import BaseAlgorithm
from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import (
    Algorithm,
    BadPayload,
    CommitGap,
    Declined,
    LateReports,
    Packed,
    Replica,
    ReportRefused,
    Sizes,
    Total,
    Work,
    commits_after,
    newest_after,
)
from seedbus.algorithms.dense.base import FedAvg
from seedbus.algorithms.dense.channels.contract import Channel
from seedbus.algorithms.dense.compression.contract import Compression
from seedbus.algorithms.dense.methods.method import Local, Method, Server
from seedbus.algorithms.directions import Directions, Law, UpdateRule
from seedbus.algorithms.objective import Differentiable, Objective
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.block import Block, descend
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.hiso_variants import HiSoVariants as HiSo
from seedbus.bus import PASS, KeyedRandom, Passage, Slowed, Speeds, Verdict
from seedbus.models.errors import DataError
from seedbus.models.partition import Divisible, Division, Partition, divide
from seedbus.models.task import ClientLoss, Problem, Task
from seedbus.scenarios.faults.base import ClientSelector, Fault, MessageSelector, RoundSelector, TrafficSelector
from seedbus.scenarios.schema.plugins import load_module, load_plugin, register
from seedbus.scenarios.tracking.tracker import TrackedRun, Tracker, TrackerRun
from seedbus.studies.check.check import check
from seedbus.vector import Vector

VERSION = 2

__all__ = [
    "PASS",
    "VERSION",
    "Aggregation",
    "Algorithm",
    "AvailabilityFault",
    "BadPayload",
    "BaseAlgorithm",
    "Block",
    "Channel",
    "ClientLoss",
    "ClientSelector",
    "CommitGap",
    "Compression",
    "DataError",
    "DeComFL",
    "Declined",
    "Differentiable",
    "Directions",
    "Divisible",
    "Division",
    "Facts",
    "Fault",
    "FedAvg",
    "HiSo",
    "KeyedRandom",
    "Known",
    "LateReports",
    "Law",
    "Local",
    "Mean",
    "MessageSelector",
    "Method",
    "Objective",
    "Packed",
    "Partition",
    "Passage",
    "Problem",
    "Replica",
    "ReportRefused",
    "RoundSelector",
    "Rule",
    "ScalarOnly",
    "Selection",
    "Server",
    "Sizes",
    "Slowed",
    "Speeds",
    "Task",
    "Total",
    "TrackedRun",
    "Tracker",
    "TrackerRun",
    "TrafficSelector",
    "UpdateRule",
    "Vector",
    "Verdict",
    "Work",
    "check",
    "commits_after",
    "descend",
    "divide",
    "load_module",
    "load_plugin",
    "newest_after",
    "register",
]
