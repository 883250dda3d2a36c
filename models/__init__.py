"""What is trained: tasks (network, data, loss, metrics), and the division of their data among clients.

Doors: `data`, `device`, `errors`, `generators`, `images`, `mask`, `masked_problem`, `numeric_state`, `own_code`,
`parameters`, `partition`, `partitions`, `preprocessing`, `tables`, `task`, `tasks`, `text`.
"""

from seedbus.models.errors import DataError
from seedbus.models.partition import Partition
from seedbus.models.partitions.by_column import ByColumn
from seedbus.models.partitions.dirichlet import Dirichlet
from seedbus.models.partitions.file import File
from seedbus.models.partitions.flwr import Flwr
from seedbus.models.partitions.iid import Iid
from seedbus.models.partitions.natural import Natural
from seedbus.models.partitions.pathological import Pathological
from seedbus.models.partitions.quantity import Quantity
from seedbus.models.partitions.shards import Shards
from seedbus.models.task import SPLITS, ClientLoss, Problem, Task

__all__ = [
    "SPLITS",
    "ByColumn",
    "ClientLoss",
    "DataError",
    "Dirichlet",
    "File",
    "Flwr",
    "Iid",
    "Natural",
    "Partition",
    "Pathological",
    "Problem",
    "Quantity",
    "Shards",
    "Task",
]
