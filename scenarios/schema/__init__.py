"""The scenario: what a file may say, read strictly, every mistake one sentence.

Doors: `discovery`, `expectations`, `loading`, `scenario`, `yaml_text`.
"""
