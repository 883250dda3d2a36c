"""What those who operate runs need: metrics over HTTP, a live view, a list of runs, and a way to stop one.

Doors: `endpoint`, `live_view`, `run_state`, `stopping`.
"""
