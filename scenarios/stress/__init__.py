"""`seedbus stress`: random scenarios, and what must be true of every one of them.

Doors: `stress`.
"""
