"""What dense updates pass through on their way up, beside the bus: one channel a file.

Doors: `contract`.
"""
