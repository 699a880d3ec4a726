"""Which libraries a script will import: found by parsing it, never by running it.

Only libraries in site-packages may be imported ahead in the zygote. The user's own modules may read RANK when imported,
so they are only parsed, to see what they import in turn.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import site
import sys
import sysconfig
from pathlib import Path

_MAX_FILES = 200


def library_folders() -> list[str]:
    """Returns the folders whose packages count as libraries."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    folders.update(entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages")))
    return sorted(os.path.realpath(folder) for folder in folders)


def find(script: str | None, module: str | None, directory: str) -> list[str]:
    """Returns the library modules that the script imports, in the order of their first mention.

    Args:
        script: The script's file; None with `module`.
        module: What `-m` names.
        directory: The ranks' working directory.
    """
    finder = _Finder(directory if script is None else os.path.dirname(script))
    if script is not None:
        path = Path(script)
        finder.read(path / "__main__.py" if path.is_dir() else path)
    elif module is not None:
        finder.follow(module, main=True)
    return list(finder.libraries)


class _Finder:
    def __init__(self, own_folder: str) -> None:
        self.libraries: dict[str, None] = {}
        self._own_folder = own_folder
        self._folders = library_folders()
        self._read: set[Path] = set()

    def read(self, path: Path) -> None:
        """Parses one file of the user's and follows its imports."""
        if path in self._read or len(self._read) >= _MAX_FILES:
            return
        self._read.add(path)
        try:
            tree = ast.parse(path.read_bytes(), str(path))
        except (OSError, SyntaxError, ValueError):
            return  # the rank will say so itself
        for name in _module_level_imports(tree):
            self.follow(name)

    def follow(self, name: str, main: bool = False) -> None:
        """Notes a library, or goes on into a module of the user's."""
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top == "phantora_runtime":
            return
        spec = _find_top(top, self._own_folder)
        origin = spec.origin if spec is not None else None
        if spec is None or (origin is None and not spec.submodule_search_locations):
            return
        places = [origin] if origin else list(spec.submodule_search_locations or [])
        if self._is_library(places) and not main:
            self.libraries[name] = None
            return
        for path in _files_of(name, spec):
            self.read(path)

    def _is_library(self, places: list[str]) -> bool:
        real = [os.path.realpath(place) for place in places]
        return all(any(place.startswith(folder + os.sep) for folder in self._folders) for place in real)


def _find_top(top: str, own_folder: str) -> importlib.machinery.ModuleSpec | None:
    try:
        spec = importlib.machinery.PathFinder.find_spec(top, [own_folder])
        return spec if spec is not None and spec.origin else importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None


def _files_of(name: str, spec: importlib.machinery.ModuleSpec) -> list[Path]:
    """Returns the file of a dotted name and of the packages above it, without importing them."""
    files = [Path(spec.origin)] if spec.origin and spec.origin.endswith(".py") else []
    roots = [Path(place) for place in spec.submodule_search_locations or []]
    for part in name.split(".")[1:]:
        roots = [root / part for root in roots]
        for root in roots:
            files += [path for path in (root / "__init__.py", root.with_suffix(".py")) if path.is_file()]
    files += [root / "__main__.py" for root in roots if (root / "__main__.py").is_file()]
    return files


def _module_level_imports(tree: ast.Module) -> list[str]:
    """Returns imported names of module level, `try`, `if` and `with` included; not those inside functions."""
    names: list[str] = []
    queue: list[ast.stmt] = list(tree.body)
    while queue:
        node = queue.pop(0)
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.append(node.module)
        elif isinstance(node, (ast.If, ast.Try, ast.With)) and not _is_type_checking(node):
            for part in ("body", "orelse", "finalbody"):
                queue += getattr(node, part, [])
            for handler in getattr(node, "handlers", []):
                queue += handler.body
    return names


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
