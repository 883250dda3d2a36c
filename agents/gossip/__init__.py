"""Runs without a server: nodes flood their commits over a graph, and each adds up what it has.

Doors: `feature`, `settings`.
"""
