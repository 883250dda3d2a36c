"""Data: where it is looked for, file formats, arrays that are prepared once, and mini-batches.

Doors: `batches`, `content`, `hub_sets`, `idx`, `image_files`, `leaf`, `prepared`, `roots`, `samples`, `untrusted`.
"""
