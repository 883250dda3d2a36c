"""Rules that combine the clients' vectors into one.

The mean and robust rules, and the sums over long vectors that they need.

Doors: `rules`, `vectors`.
"""
