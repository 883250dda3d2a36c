"""How the uplink of dense algorithms is made smaller: one codec a file.

Doors: `contract`.
"""
