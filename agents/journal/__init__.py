"""The journal: every commit, durable before anybody hears of it, and all that a resumed run needs.

Doors: `file`, `head`, `journal`, `reader`.
"""
