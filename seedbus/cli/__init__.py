"""The command line. Larger commands have a file each.

Doors: `main`.
"""
