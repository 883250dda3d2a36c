"""Evaluation by clients: each measures the newest model on its own held-out samples, and sums and counts travel.

Doors: `client`, `server`, `sums`.
"""
