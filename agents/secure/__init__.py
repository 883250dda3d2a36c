"""Secure aggregation: the server learns the sum of a round's reports, and no report.

Doors: `feature`, `settings`, `sharing`, `stages`.
"""
