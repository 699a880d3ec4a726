"""`phantora image list|prune` on a real Docker Engine, with a label of the test's own: the images of other tests stay."""

from __future__ import annotations

import io
import tarfile
import uuid

import pytest
from typer.testing import CliRunner

from phantora.cli import app
from phantora.sandbox import image

pytestmark = [pytest.mark.docker, pytest.mark.slow]
PAYLOAD = 3 << 20


@pytest.fixture
def label(monkeypatch, docker_engine):
    label = f"org.phantora.test-{uuid.uuid4().hex}"
    monkeypatch.setattr(image, "LABEL", label)
    yield label
    for left in docker_engine.images.list(all=True, filters={"label": label}):
        docker_engine.images.remove(left.id, force=True)


def build(client, label: str, tag: str, content: bytes) -> None:
    """An image with a stage that stays behind without a name, as those of sandboxed runs have one."""
    dockerfile = f"FROM scratch AS left\nLABEL {label}=1\nCOPY payload /stage\nFROM scratch\nLABEL {label}=1\nCOPY --from=left /stage /\n"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in (("Dockerfile", dockerfile.encode()), ("payload", content * PAYLOAD)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    buffer.seek(0)
    for event in client.api.build(fileobj=buffer, custom_context=True, tag=tag, decode=True):
        assert "error" not in event, event


def test_list_and_prune(label, docker_engine):
    first, second = (f"phantora-test:{uuid.uuid4().hex[:12]}" for _ in range(2))
    build(docker_engine, label, first, b"a")
    build(docker_engine, label, second, b"b")
    held = docker_engine.api.create_container(second, ["/none"])["Id"]
    try:
        listed = CliRunner().invoke(app, ["image", "list"])
        assert listed.exit_code == 0, listed.output
        assert sorted(listed.output.splitlines()) == sorted(f"{name}\t3.0 MiB" for name in (first, second))

        pruned = CliRunner().invoke(app, ["image", "prune"])
        assert pruned.exit_code == 0, pruned.output
        assert f"removed {first}\t3.0 MiB" in pruned.stdout.splitlines()
        assert f"{second} stays: " in pruned.stderr, "a container uses it"
        assert [name for name, _ in image.present(docker_engine)] == [second]
    finally:
        docker_engine.api.remove_container(held, force=True)
    stages = docker_engine.images.list(filters={"label": label, "dangling": True})
    assert stages == [], "what building left behind went too"
    assert "removed what building left behind" in pruned.stdout

    assert CliRunner().invoke(app, ["image", "prune"]).exit_code == 0
    assert docker_engine.images.list(all=True, filters={"label": label}) == []
    assert CliRunner().invoke(app, ["image", "list"]).output == ""
