"""Instruments on a finished run: curvature, divergence and catch-up, from its journal, its ledger and its data.

Doors: `analyse`, `client_models`, `curvature`, `foreseen`, `quantities`.
"""
