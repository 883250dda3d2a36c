"""Reports of a run: results, tables, pages, progress, and comparisons.

Doors: `axes`, `client_groups`, `client_names`, `compare`, `compare_page`, `compared`, `division`, `document`,
`figures`, `findings`, `leaves`, `looks`, `messages`, `meter`, `outlook`, `page`, `paper`, `progress`, `rate_limit`,
`report`, `results`, `round_table`, `run_report`, `terminal`, `written`.
"""
