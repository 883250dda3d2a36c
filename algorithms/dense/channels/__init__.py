"""Models of the physical uplink of dense algorithms: one channel a file.

Doors: `contract`.
"""
