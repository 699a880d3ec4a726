"""Builds, caches and loads the torch adaptor: the C++ library that tells the shim which operator runs, on what values.

It is compiled against the torch that the ranks import: torch's C++ interface differs from build to build. The result is
cached under $PHANTORA_CACHE (else ~/.cache/phantora) by torch's version and git revision, the sources and the compiler.
The supervisor builds before ranks start, so no build takes place under the virtual clock. Images are built with
`python -m phantora_runtime.adaptor --build DIR`, and say so with $PHANTORA_ADAPTOR=DIR. For a torch that is not on this
machine its version.py and headers are enough (`--torch DIR`).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DIRECTORY_VARIABLE = "PHANTORA_ADAPTOR"
CACHE_VARIABLE = "PHANTORA_CACHE"

_SOURCES = Path(__file__).with_name("adaptor_src")
_UNIT = "adaptor.cpp"
_FLAGS = ("-O2", "-DNDEBUG", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden")
_LIBRARIES = ("c10", "torch_cpu", "torch_cuda")
_WITHOUT = (
    "kernels are not tied to their operators, and small tensors read as zeros, "
    "so scripts that steer by device values may fail"
)


class AdaptorError(RuntimeError):
    """The adaptor cannot be built here; the text says why and what to do."""


@dataclass(frozen=True)
class Torch:
    """The torch that ranks import, found without importing it.

    Attributes:
        root: The folder of the package torch.
        version, git_version: As torch.version has them.
        cuda: The version of CUDA it was built for; empty: none.
    """

    root: Path
    version: str
    git_version: str
    cuda: str = ""

    @classmethod
    def find(cls) -> Torch | None:
        """Returns None when this interpreter has no torch."""
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            return None
        return cls.at(Path(spec.origin).parent)

    @classmethod
    def at(cls, root: Path) -> Torch:
        """Returns the torch of a folder that holds its version.py."""
        values = _assigned_strings(root / "version.py")
        version, git_version = (values.get(name, "unknown") for name in ("__version__", "git_version"))
        return cls(root, version, git_version, values.get("cuda", ""))

    def has_cuda(self) -> bool:
        """A torch built without CUDA has nothing to adapt."""
        return (self.root / "lib" / "libtorch_cuda.so").exists()


def _assigned_strings(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.parse(path.read_text()).body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found.update({target.id: value.value for target in targets if isinstance(target, ast.Name)})
    return found


def compiler() -> str | None:
    """Returns the C++ compiler's path: $CXX, else g++, else clang++."""
    for name in (os.environ.get("CXX", ""), "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path is not None:
            return path
    return None


def _source_digest() -> str:
    digest = hashlib.sha256("\0".join(_FLAGS).encode())
    for path in sorted(_SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _tool_environment() -> dict[str, str]:
    """The environment for the compiler: without the shim, which must not answer for it."""
    return {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}


def _compiler_version(path: str) -> str:
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, env=_tool_environment(), check=False)
    return answer.stdout.partition("\n")[0]


def _stem(torch: Torch) -> str:
    key = hashlib.sha256(f"{torch.version}\0{torch.git_version}\0{_source_digest()}".encode()).hexdigest()
    return f"adaptor-{key[:16]}"


def cache_directory() -> Path:
    """Where builds are kept: $PHANTORA_CACHE, else ~/.cache/phantora."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "phantora"


def prebuilt(torch: Torch) -> Path | None:
    """The library that was built into $PHANTORA_ADAPTOR, if it is for this torch and these sources."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    return built(Path(directory), torch) if directory else None


def built(directory: Path, torch: Torch) -> Path | None:
    """The library for this torch and these sources in a folder that was built into, if it is there."""
    path = directory / f"{_stem(torch)}.so"
    return path if path.exists() else None


def build(directory: Path, torch: Torch, keyed_by_compiler: bool = False) -> Path:
    """Compiles the adaptor into `directory` unless it is there already.

    Args:
        directory: Made if it is missing.
        torch: What to compile against.
        keyed_by_compiler: Put the compiler's version into the file's name (caches, which outlive compilers).

    Returns:
        The library's path.

    Raises:
        AdaptorError: No compiler, a failed compilation, or a folder that cannot be written.
    """
    path = compiler()
    if path is None:
        raise AdaptorError(f"no C++ compiler was found (g++ or clang++ of a version with C++20, or $CXX): {_WITHOUT}.")
    name = _stem(torch)
    if keyed_by_compiler:
        name += "-" + hashlib.sha256(_compiler_version(path).encode()).hexdigest()[:8]
    target = directory / f"{name}.so"
    if target.exists():
        return target
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory / f"{name}.lock"):
            if not target.exists():
                _compile(path, torch, target)
    except OSError as error:
        raise AdaptorError(
            f"the torch adaptor cannot be written to {directory} ({error}); set {CACHE_VARIABLE} to a folder that can."
        ) from error
    return target


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    # Only ever taken by processes outside the virtual clock: supervisors, image builds, and a zygote before it forks.
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(path: str, torch: Torch, target: Path) -> None:
    include, libraries = torch.root / "include", torch.root / "lib"
    with tempfile.TemporaryDirectory(prefix=".adaptor-", dir=target.parent) as scratch:
        part = Path(scratch) / target.name
        unresolved = "ignore-in-shared-libs"
        if not libraries.is_dir():
            libraries, unresolved = Path(scratch), "ignore-all"
            _make_stand_ins(path, libraries)
        command = [
            path,
            *_FLAGS,
            "-isystem",
            str(include),
            "-isystem",
            str(include / "torch" / "csrc" / "api" / "include"),
            "-o",
            str(part),
            str(_SOURCES / _UNIT),
            f"-L{libraries}",
            "-Wl,--no-as-needed",  # by name: a stand-in resolves nothing
            *(f"-l{name}" for name in _LIBRARIES),
        ]
        # libtorch_cuda's own needs (CUDA) are the shim's at run time, absent at link time.
        command += ["-Wl,--allow-shlib-undefined", f"-Wl,--unresolved-symbols={unresolved}"]
        _call(command)
        part.chmod(0o755)
        part.replace(target)


def _make_stand_ins(path: str, folder: Path) -> None:
    """Empty libraries under the names of torch's, to link against where only its headers are at hand."""
    for name in _LIBRARIES:
        library = f"lib{name}.so"
        _call([path, "-shared", f"-Wl,-soname,{library}", "-o", str(folder / library), "-x", "c++", "/dev/null"])


def _call(command: list[str]) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, env=_tool_environment(), check=False)
    if answer.returncode != 0:
        errors = [line for line in answer.stderr.splitlines() if "error" in line] or answer.stderr.splitlines()
        reason = errors[0] if errors else f"exit status {answer.returncode}"
        raise AdaptorError(f"the torch adaptor did not compile with {command[0]} ({reason}): {_WITHOUT}.")


def ensure() -> Path:
    """Returns the adaptor for this interpreter's torch, built first if need be (about 15 s, once).

    Raises:
        AdaptorError: There is none and none can be built.
    """
    torch = Torch.find()
    if torch is None:
        raise AdaptorError(f"{sys.executable} has no torch.")
    if not torch.has_cuda():
        raise AdaptorError(f"torch {torch.version} was built without CUDA; install a CUDA build of torch.")
    return prebuilt(torch) or build(cache_directory(), torch, keyed_by_compiler=True)


def load() -> bool:
    """Loads the adaptor and starts it; call with torch imported and the shim preloaded, before ranks are forked.

    Returns:
        False when there is no adaptor or no shim; the reason goes to the report as a note.
    """
    try:
        library = ctypes.CDLL(str(ensure()), mode=ctypes.RTLD_GLOBAL)
    except (AdaptorError, OSError) as error:
        _note(f"Without the torch adaptor: {error}")
        return False
    library.phantora_adaptor_start.restype = ctypes.c_int
    if library.phantora_adaptor_start() == 1:
        return True
    _note(f"Without the torch adaptor: the shim in this process lacks its functions, and {_WITHOUT}.")
    return False


def _note(text: str) -> None:
    print(f"phantora: {text}", file=sys.stderr)
    with contextlib.suppress(AttributeError):
        note = ctypes.CDLL(None).phantora_note
        note.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        note.restype = None
        note(b"note", text.encode())


def main(arguments: list[str] | None = None) -> int:
    """Command line: build into a folder (image builds) or into the cache, and print the library's path."""
    parser = argparse.ArgumentParser(prog="python -m phantora_runtime.adaptor", description="Builds the torch adaptor.")
    parser.add_argument("--build", type=Path, metavar="DIR", help="folder to build into (default: the cache)")
    parser.add_argument("--torch", type=Path, metavar="DIR", help="folder with version.py and include/ of a torch")
    options = parser.parse_args(arguments)
    try:
        torch = Torch.at(options.torch) if options.torch is not None else Torch.find()
        path = build(options.build, torch) if options.build is not None and torch is not None else ensure()
    except AdaptorError as error:
        print(f"phantora: {error}", file=sys.stderr)
        return 3
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
