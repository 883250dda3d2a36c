"""Start a run's worker processes: on this machine, on the nodes of a Ray cluster, or as a job of Slurm.

Doors: `launcher`, `local`, `named`, `worker_processes`.
"""
