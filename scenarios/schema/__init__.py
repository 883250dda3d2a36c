"""The scenario file: its schema, and strict reading, with one sentence for each mistake.

Doors: `discovery`, `expectations`, `loading`, `scenario`, `yaml_text`.
"""
