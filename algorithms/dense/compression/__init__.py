"""Compression of the uplink of dense algorithms: one codec a file.

Doors: `contract`, `fixed_point`.
"""
