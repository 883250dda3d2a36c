"""Studies: a scenario with many settings and seeds, run in processes, kept by content, and compared with intervals.

Doors: `cells`, `compare`, `comparison`, `estimate`, `live_study`, `pool`, `possible`, `progress`, `remarks`, `results`,
`store`, `study`, `study_page`, `study_report`, `tables`.
"""

MOST_PROCESSES = 1_024
"""Of one study at a time. It stands here, since the command's help loads nothing heavy."""
