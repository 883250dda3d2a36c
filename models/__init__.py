"""What is trained: tasks (network, data, loss, metrics), and the division of their data among clients.

Doors: `data`, `errors`, `partitions`, `task`, `text`.
"""

from seedbus.models.errors import DataError
from seedbus.models.partitions import Dirichlet, Iid, Natural, Partition, Shards
from seedbus.models.task import SPLITS, ClientLoss, Problem, Task

__all__ = [
    "SPLITS",
    "ClientLoss",
    "DataError",
    "Dirichlet",
    "Iid",
    "Natural",
    "Partition",
    "Problem",
    "Shards",
    "Task",
]
