"""The journal: every commit, durable before it is published, and all that a resumed run needs.

Doors: `base`, `digests`, `file`, `head`, `holder`, `journal`, `metrics`, `reader`, `records`.
"""
