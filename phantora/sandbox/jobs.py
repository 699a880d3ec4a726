"""Short containers for jobs of our own: looking into an image, compiling, removing what only root can remove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from phantora.errors import PhantoraError
from phantora.sandbox import engine, stale
from phantora.sandbox.mounts import PREFIX, Mount

LIBRARY = f"{PREFIX}/lib"


@contextmanager
def container(
    client: Any,
    name: str,
    command: list[str],
    mounts: list[Mount],
    ids: tuple[int, int],
    capabilities: Sequence[str] = (),
) -> Iterator[str]:
    """A container for a short job of ours, removed at the end: no network, no rights but those named.

    Args:
        client: Of the Engine.
        name: The image.
        command: Program and arguments.
        mounts: What it sees of this machine.
        ids: User and group id.
        capabilities: Linux capabilities without `CAP_`.
    """
    from docker.types import Mount as DockerMount

    host = client.api.create_host_config(
        network_mode="none",
        cap_drop=["ALL"],
        cap_add=list(capabilities),
        security_opt=["no-new-privileges:true"],
        mounts=[DockerMount(m.target, str(m.source), type="bind", read_only=m.read_only) for m in mounts],
    )
    with engine.named(f"a container from {name}"):
        created = client.api.create_container(
            name,
            command[1:],
            entrypoint=command[:1],
            user=f"{ids[0]}:{ids[1]}",
            environment={"PYTHONPATH": LIBRARY, "PYTHONDONTWRITEBYTECODE": "1"},
            host_config=host,
            labels={stale.LABEL: name, stale.LAUNCHER_LABEL: stale.this_launcher()},
        )
    try:
        yield created["Id"]
    finally:
        with engine.named(f"to remove a container from {name}"):
            client.api.remove_container(created["Id"], force=True, v=True)


def run(client: Any, container: str, what: str) -> tuple[int, str]:
    """Runs it to its end and returns its exit code and what it printed; of a good one not the warnings."""
    from docker.errors import APIError

    with engine.named(what):
        try:
            client.api.start(container)
        except APIError as error:
            do = "Is it in the image's PATH, and the image made for this machine?"
            raise PhantoraError(what, str(error.explanation).strip(), do) from None
        code = int(client.api.wait(container)["StatusCode"])
        return code, client.api.logs(container, stdout=True, stderr=bool(code)).decode(errors="replace")


def remove_as_root(client: Any, name: str, folder: Path) -> None:
    """Empties a folder of which parts are root's, with the `rm` of an image. What cannot be removed stays."""
    with suppress(PhantoraError):
        command = ["rm", "-rf", "/folder/work", "/folder/index"]
        mounts = [Mount(folder, "/folder", read_only=False)]
        with container(client, name, command, mounts, (0, 0), capabilities=["DAC_OVERRIDE"]) as job:
            run(client, job, f"to empty {folder}")
