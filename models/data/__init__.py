"""Data: where it is looked for, file formats, arrays that are prepared once, and mini-batches.

Doors: `batches`, `content`, `idx`, `image_files`, `leaf`, `prepared`, `roots`, `samples`, `untrusted`.
"""
