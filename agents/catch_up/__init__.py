"""Catching up: a client that lags gets the commits that it missed, or a snapshot of the model.

Doors: `caught_up`, `chunks`, `client`, `commit_window`, `feature`, `server`, `settings`, `snapshot_bytes`.
"""
