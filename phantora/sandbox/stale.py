"""Containers whose launcher is gone: those that run end by themselves, those that never started are removed here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

LABEL = "org.phantora.run"
LAUNCHER_LABEL = "org.phantora.launcher"


def this_launcher() -> str:
    """Returns what names this process for good: machine start, pid namespace, pid and start time."""
    return _name(os.getpid()) or ""


def remove(client: Any) -> list[str]:
    """Removes the containers of launchers that have ended; returns their ids."""
    from docker.errors import DockerException

    removed: list[str] = []
    try:
        for container in client.api.containers(all=True, filters={"label": LAUNCHER_LABEL}):
            if not _is_alive(container["Labels"][LAUNCHER_LABEL]):
                client.api.remove_container(container["Id"], force=True, v=True)
                removed.append(container["Id"])
    except (DockerException, OSError):  # another launcher removes it at this moment, or it goes by itself
        return removed
    return removed


def _is_alive(name: str) -> bool:
    """Those of other machines that share the Engine, and of other pid namespaces, count as alive: nobody knows here."""
    parts = name.split(" ")
    here = this_launcher().split(" ")
    if len(parts) != len(here) or parts[:2] != here[:2] or not parts[2].isdigit():
        return True
    return _name(int(parts[2])) == name


def _name(pid: int) -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    state, start = fields[0], fields[19].decode()
    return f"{boot} {namespace} {pid} {start}" if state not in (b"Z", b"X") else None
