"""The command line: one command a file.

Doors: `errors`, `main`.
"""
