"""Reports of a run: results, tables, pages, and progress.

Doors: `axes`, `client_groups`, `client_names`, `division`, `document`, `figures`, `findings`, `looks`, `messages`,
`meter`, `outlook`, `page`, `paper`, `progress`, `rate_limit`, `report`, `results`, `round_table`, `run_report`,
`shortcomings`, `statistics`, `terminal`, `text_tables`, `written`.
"""
