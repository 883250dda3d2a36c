"""The scenario file: its schema, and strict reading, with one sentence for each mistake.

Doors: `amounts`, `discovery`, `expectations`, `loading`, `plugin_use`, `plugins`, `python_values`, `scenario`,
`without_effect`, `yaml_text`.
"""
