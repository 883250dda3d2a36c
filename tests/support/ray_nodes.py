"""A program: two Ray nodes of this machine, with two CPUs each, until its standard input ends.

It prints the cluster's address and the process id of the second node, on which killing it and its children is what
losing a machine would be.
"""

import sys
import warnings

warnings.simplefilter("ignore")
from ray.cluster_utils import Cluster  # noqa: E402

OBJECT_STORE_BYTES = 80 * 2**20


def main() -> None:
    options = {"num_cpus": 2, "object_store_memory": OBJECT_STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    second = cluster.add_node(**options)
    print(cluster.address, second.all_processes["raylet"][0].process.pid, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
