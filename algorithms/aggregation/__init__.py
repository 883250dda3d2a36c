"""Rules that make one vector out of many.

The mean and robust rules, and the sums over long vectors that they need.

Doors: `rules`, `vectors`.
"""
