"""Policies that every algorithm shares: which clients a round asks, and which get a snapshot.

Doors: `participation`, `selection`, `snapshot_budget`, `snapshot_bytes`.
"""
