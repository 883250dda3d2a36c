"""The partitions: one file for each kind of a scenario's `partition:`.

Doors: `dirichlet`, `file`, `iid`, `natural`, `pathological`, `quantity`, `shards`.
"""
