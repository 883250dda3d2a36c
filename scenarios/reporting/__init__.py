"""Reports of a run: results, tables, pages, and progress.

Doors: `accounting`, `axes`, `client_groups`, `client_names`, `closing_table`, `described`, `division`, `document`,
`fields`, `figures`, `findings`, `key_figures`, `looks`, `messages`, `meter`, `page`, `paper`, `progress`, `rate_limit`,
`remaining_time`, `results`, `results_digest`, `results_schema`, `round_table`, `run_report`, `shortcomings`,
`statistics`, `terminal`, `text_tables`, `words`.
"""
