"""Studies: a scenario with many settings and seeds, run in processes, kept by content, and compared with intervals.

Doors: `study`.
"""
