"""Any data set and any model of the Hugging Face libraries: images or text with classes, or text alone.

Doors: `problem`, `settings`.
"""
