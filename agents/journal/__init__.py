"""The journal: every commit, durable before it is published, and all that a resumed run needs.

Doors: `digests`, `file`, `forms`, `head`, `holder`, `journal`, `reader`, `records`.
"""
