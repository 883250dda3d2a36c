"""The dense family: algorithms whose clients report vectors of the model's size.

`methods` has one paper a file, `compression` one codec a file, and `channels` one channel a file.

Doors: `base`.
"""
