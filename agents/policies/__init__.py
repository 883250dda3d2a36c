"""Policies that every algorithm shares: which clients a round asks, and when it closes.

Doors: `deadline`, `participation`, `selection`.
"""
