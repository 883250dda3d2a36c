"""What is trained: tasks (network, data, loss, metric) bound to data, and its partition. A task is one file here.

Doors: `data`, `errors`, `partitions`, `task`, `text`.
"""

from seedbus.models.errors import DataError
from seedbus.models.partitions import Dirichlet, Iid, Natural, Partition, Shards
from seedbus.models.task import SPLITS, Objective, Problem, Task

__all__ = [
    "SPLITS",
    "DataError",
    "Dirichlet",
    "Iid",
    "Natural",
    "Objective",
    "Partition",
    "Problem",
    "Shards",
    "Task",
]
