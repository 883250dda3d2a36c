"""The partitions: one file for each kind of a scenario's `partition:`.

Doors: `by_column`, `dirichlet`, `file`, `flwr`, `iid`, `natural`, `own`, `pathological`, `quantity`, `shards`.
"""
