"""Secure aggregation: the server learns the sum of a round's reports, and no report.

Doors: `party`, `secure_round`, `settings`, `sharing`, `stages`.
"""
