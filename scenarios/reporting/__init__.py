"""Reports of a run: results, tables, pages, progress, and comparisons.

Doors: `accounting`, `compare`, `compare_page`, `page`, `progress`, `rate_limit`, `report`, `results`, `round_table`,
`statistics`, `terminal`.
"""
