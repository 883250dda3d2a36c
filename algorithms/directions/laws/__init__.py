"""The laws of directions' coordinates: one a file, each a table of quantiles.

Doors: `gaussian`, `law`, `rademacher`.
"""
