"""Differential privacy of clients: clipped reports, exact discrete Gaussian noise, and what a run has spent.

Doors: `feature`, `foreseen`, `settings`, `spent`.
"""
