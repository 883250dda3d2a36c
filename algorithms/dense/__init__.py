"""The dense family: clients send vectors.

One paper a file in `methods`, one codec a file in `compression`, one channel a file in `channels`.

Doors: `base`.
"""
