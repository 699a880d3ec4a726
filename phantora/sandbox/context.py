"""Assembles the build context of the image: what the wheel carries, plus what the user chose."""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata, resources
from pathlib import Path

from phantora import profile_store, stubs
from phantora.native import native_folder

# Settings of pip that name files of this machine: they mean nothing in the build. The CA bundle goes in by --ca-bundle.
_PATH_SETTINGS = frozenset(
    f"PIP_{name}"
    for name in (
        "CERT",
        "CLIENT_CERT",
        "CACHE_DIR",
        "CONFIG_FILE",
        "LOG",
        "TARGET",
        "PREFIX",
        "ROOT",
        "SRC",
        "PYTHON",
        "REQUIRE_VIRTUALENV",
        "USER",
        "CONSTRAINT",
        "REQUIREMENT",
        "BUILD_CONSTRAINT",
    )
)
_PROXY_SETTINGS = ("http_proxy", "https_proxy", "no_proxy")
BUILD_FOLDER = "/opt/phantora/build"
_CLI = "phantora/cli"
_NOT_IN_IMAGE = ("docker", "numpy", "psutil")
_EXECUTABLE = (".so", "phantora-core", "bin/phantora")


@dataclass(frozen=True)
class BuildContext:
    """Everything an image is made from.

    Attributes:
        base_image: Image name, as the Dockerfile's FROM takes it.
        base_identity: Id of the base image where it is already on this machine, else its name.
        torch: A version of torch.
        requirements: Content of the user's requirements file; empty: none.
        ca_bundle: Certificates (PEM) that apt and pip trust in the build; empty: the base image's own.
        environment: pip's own settings.
    """

    base_image: str
    base_identity: str
    torch: str
    requirements: bytes = b""
    ca_bundle: bytes = field(default=b"", repr=False)
    environment: dict[str, str] = field(default_factory=dict, repr=False)

    def digest(self) -> str:
        """Returns what the image's tag is made of: equal inputs, equal tag.

        How the build reaches its package index (certificates, index address) is left out: it changes no content.
        """
        hasher = self._hash_of_base()
        hasher.update(self.torch.encode() + b"\0")
        hasher.update(hashlib.sha256(self.requirements).digest())
        for name, content in self._shipped_files():
            hasher.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        return hasher.hexdigest()[:12]

    def compiler_digest(self) -> str:
        """The same for the stage that has the base image and a compiler, and neither torch nor Phantora."""
        hasher = self._hash_of_base()
        hasher.update(_dockerfile())
        return hasher.hexdigest()[:12]

    def _hash_of_base(self) -> hashlib._Hash:
        return hashlib.sha256(f"{self.base_image}\0{self.base_identity}\0".encode())

    def tar(self) -> io.BytesIO:
        """Returns the context as a tar archive, the same bytes for the same content."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, content in [*self._shipped_files(), *self._chosen_files()]:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                entry.mode = 0o755 if name.endswith(_EXECUTABLE) else 0o644
                archive.addfile(entry, io.BytesIO(content))
            for name in stubs.names(native_folder()):
                link = tarfile.TarInfo(f"phantora/native/{stubs.FOLDER}/{name}")
                link.type = tarfile.SYMTYPE
                link.linkname = f"../{stubs.SHIM}"
                archive.addfile(link)
            link = tarfile.TarInfo(f"{_CLI}/phantora/profiles")
            link.type = tarfile.SYMTYPE
            link.linkname = "../../profiles"
            archive.addfile(link)
        buffer.seek(0)
        return buffer

    def _chosen_files(self) -> Iterator[tuple[str, bytes]]:
        yield "build/requirements.txt", self.requirements
        yield "ca-bundle.crt", self.ca_bundle
        lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(self.environment.items())]
        apt = ""
        if self.ca_bundle:
            bundle = f"{BUILD_FOLDER}/ca-bundle.crt"
            names = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
            lines += [f"export {name}={bundle}" for name in names]
            apt = f'Acquire::https::CaInfo "{bundle}";\n'
        lines += [f"export APT_CONFIG={BUILD_FOLDER}/apt.conf", "export DEBIAN_FRONTEND=noninteractive"]
        lines += ["export PIP_NO_CACHE_DIR=1", "export PIP_DISABLE_PIP_VERSION_CHECK=1"]
        yield "build/environment.sh", ("\n".join(lines) + "\n").encode()
        yield "apt.conf", apt.encode()

    def _shipped_files(self) -> Iterator[tuple[str, bytes]]:
        """What comes with Phantora: name in the context and content, in a fixed order."""
        yield "Dockerfile", _dockerfile()
        yield "build/install_torch.py", (_context_folder() / "install_torch.py").read_bytes()
        runtime = Path(str(resources.files("phantora_runtime")))
        for name in ("__init__.py", "adaptor.py"):
            yield f"adaptor/phantora_runtime/{name}", (runtime / name).read_bytes()
        yield from _tree(runtime / "adaptor_src", "adaptor/phantora_runtime/adaptor_src")
        native = native_folder()
        for name in (stubs.SHIM, "phantora-core"):
            yield f"phantora/native/{name}", (native / name).read_bytes()
        yield from _tree(runtime, "phantora/lib/phantora_runtime")
        yield "build/cli.txt", "".join(f"{line}\n" for line in _cli_requirements()).encode()
        yield "phantora/bin/phantora", (_context_folder() / "phantora.sh").read_bytes()
        for package in ("phantora", "phantora_tui"):
            yield from _tree(Path(str(resources.files(package))), f"{_CLI}/{package}", without=("_native", "profiles"))
        yield from _tree(profile_store.profiles_folder(), "phantora/profiles")


def _dockerfile() -> bytes:
    return (_context_folder() / "Dockerfile").read_bytes()


def _context_folder() -> Path:
    return Path(str(resources.files("phantora.sandbox"))) / "context"


def _cli_requirements() -> list[str]:
    """What the command line inside the image needs: as the wheel says, but for what it does not use there."""
    lines = metadata.requires("phantora-sim") or []
    return sorted(line for line in lines if "extra ==" not in line and not line.startswith(_NOT_IN_IMAGE))


def _tree(folder: Path, prefix: str, without: Sequence[str] = ()) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and "__pycache__" not in relative.parts and relative.parts[0] not in without:
            yield f"{prefix}/{relative.as_posix()}", path.read_bytes()


def pip_settings() -> dict[str, str]:
    """Returns pip's settings and the proxies of this environment, as far as they mean something in an image build."""
    settings = {k: v for k, v in os.environ.items() if k.startswith("PIP_") and k not in _PATH_SETTINGS}
    for name in _PROXY_SETTINGS:
        for spelling in (name, name.upper()):
            if spelling in os.environ:
                settings[spelling] = os.environ[spelling]
    return settings
