"""Processes that see none of the folders that are hidden from them."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path


def hidden(*folders: Path) -> list[str]:
    """Return the command in which a process sees nothing in these folders."""
    mounts = " && ".join(f"mount -t tmpfs none {folder}" for folder in folders)
    return ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"]


def has_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode == 0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
