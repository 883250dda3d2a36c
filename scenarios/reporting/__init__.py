"""What a run tells: results, tables, pages, progress, and comparisons."""
