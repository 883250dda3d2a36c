"""A run taken elsewhere: as one archive that `seedbus verify` reads, and as an app of Flower.

Doors: `archive`, `flower`, `given`.
"""
