"""For operators of runs: metrics and a live page over HTTP, a live view, a list of runs, a way to stop one.

Doors: `endpoint`, `live_page`, `live_view`, `run_state`, `stopping`.
"""
