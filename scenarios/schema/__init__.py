"""The scenario file: its schema, and strict reading, with one sentence for each mistake.

Doors: `discovery`, `expectations`, `loading`, `plugin_use`, `plugins`, `scenario`, `yaml_text`.
"""
