"""Where data comes from: folders, file formats, arrays prepared once, and mini-batches."""
