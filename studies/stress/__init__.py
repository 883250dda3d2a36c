"""`seedbus stress`: random scenarios, and the invariants that every run must satisfy.

Doors: `stress`.
"""
