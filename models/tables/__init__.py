"""Tables of the user's own: columns from CSV or Parquet, their encoding as numbers, and regression.

Doors: `encoding`, `moments`, `new_rows`, `owners`, `problem`, `settings`, `stated`.
"""
