"""Seedbus: federated learning as messages, with every byte counted."""

from pathlib import Path

_FOLDER = Path(__file__).parent
if not (_FOLDER / "bus").is_dir():
    # Imported from the root of a checkout, where the layers are this folder's siblings.
    __path__.append(str(_FOLDER.parent))
