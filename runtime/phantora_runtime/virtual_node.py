"""Names of virtual nodes, as the shim resolves them."""

from __future__ import annotations


def node_name(node: int) -> str:
    """Returns the host name of a virtual node."""
    return f"node-{node}"
