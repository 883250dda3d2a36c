"""Data: where it is looked for, file formats, arrays that are prepared once, and mini-batches.

Doors: `batches`, `idx`, `image_files`, `leaf`, `prepared`, `roots`, `samples`, `untrusted`.
"""
