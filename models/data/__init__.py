"""Where data comes from: folders, file formats, arrays prepared once, and mini-batches.

Doors: `batches`, `idx`, `image_files`, `leaf`, `prepared`, `roots`, `samples`.
"""
