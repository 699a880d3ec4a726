"""run.json as the runtime reads it, and where the native files and profiles lie."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What a sandboxed script wrote where it may not write lies in this folder of the run directory.
FILES = "files"


class EnvironmentFault(Exception):
    """This machine lacks something; the message is a complete line for the user (exit code 3)."""


class UsageFault(Exception):
    """The user's input cannot be used; the message is a complete line for the user (exit code 2)."""


@dataclass(frozen=True)
class Launch:
    """The section `launch` of run.json. Times in ns; `steps` is None when the script runs to its end."""

    python: str
    directory: str
    world_size: int
    gpus_per_node: int
    nodes: int
    steps: int | None
    warmup: int
    timeout_ns: int
    script: str | None = None
    script_argument: str | None = None
    module: str | None = None
    arguments: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    fail_if: list[str] = field(default_factory=list)
    json: bool = False
    quiet: bool = False
    seed: int = 0
    clock: str = "measured"
    gpu: str = ""
    cluster: str = ""
    host: str = ""
    parallel: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A run directory with its run.json, read."""

    folder: Path
    launch: Launch
    core: dict[str, Any]
    notes: list[str]
    content: dict[str, Any]

    @property
    def null_mode(self) -> bool:
        """PHANTORA_NULL=1: same launcher and shim, but no core, records, costs or virtual clock."""
        return os.environ.get("PHANTORA_NULL", "") == "1"

    @property
    def sandboxed(self) -> bool:
        """In a container that `phantora sandbox` made: nobody else's processes, and stdin ends with the launcher."""
        return "sandbox" in self.content

    @property
    def cache(self) -> Path | None:
        """Where caches are kept between the runs of a sandbox."""
        return Path(os.environ["XDG_CACHE_HOME"]) if self.sandboxed and "XDG_CACHE_HOME" in os.environ else None

    def log_path(self, rank: int) -> Path:
        """Where stdout and stderr of a rank go."""
        return self.folder / "ranks" / f"{rank:05d}.log"

    def stack_path(self, rank: int) -> Path:
        """Where a rank writes its Python stacks when asked."""
        return self.folder / "ranks" / f"{rank:05d}.stacks"


def read(folder: Path) -> Run:
    """Reads run.json.

    Raises:
        EnvironmentFault: It is missing or not ours.
    """
    path = folder / "run.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        known = {key: value for key, value in content["launch"].items() if key in Launch.__dataclass_fields__}
        return Run(folder, Launch(**known), dict(content["core"]), list(content.get("notes", [])), content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EnvironmentFault(
            f"Wanted a run description in {path}; found {error!r}. Start runs with `phantora run`."
        ) from error


def native_folder() -> Path:
    """Returns the folder with libphantora_shim.so, stubs/ and phantora-core.

    Raises:
        EnvironmentFault: There is none.
    """
    here = Path(__file__).resolve().parent
    candidates = [here.parent / "phantora" / "_native"]
    if os.environ.get("PHANTORA_NATIVE"):
        candidates.insert(0, Path(os.environ["PHANTORA_NATIVE"]))
    candidates.append(here.parent.parent / "build" / "native")
    for folder in candidates:
        if (folder / "libphantora_shim.so").exists():
            return folder.resolve()
    looked = ", ".join(str(folder) for folder in candidates)
    raise EnvironmentFault(
        f"Wanted the native files; found none in {looked}. Install phantora-sim again or run `make native`."
    )


def profiles_folder() -> Path:
    """Returns the folder that table paths of run.json are relative to."""
    here = Path(__file__).resolve().parent
    candidates = [here.parent / "phantora" / "profiles", here.parent.parent / "profiles"]
    if os.environ.get("PHANTORA_PROFILES"):
        candidates.insert(0, Path(os.environ["PHANTORA_PROFILES"]))
    return next((folder for folder in candidates if folder.is_dir()), candidates[-1])
