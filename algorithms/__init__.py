"""Federated learning algorithms: their contract, seeded directions and their replay, and one paper per file.

Doors: `aggregation`, `base`, `capabilities`, `contract`, `dense`, `directions`, `objective`, `scalar_only`, `schedule`.
"""
