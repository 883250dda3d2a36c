"""Policies that every algorithm shares: who takes part in a round, and who gets a snapshot.

Doors: `participation`, `selection`, `snapshot_budget`.
"""
