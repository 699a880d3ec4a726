"""The options of `run` and `sandbox` as plain data; commands/ fills it from the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_GPUS = 8
DEFAULT_GPUS_PER_NODE = 8
DEFAULT_GPU = "h100-sxm-80gb"
DEFAULT_CLUSTER = "dgx-h100"
DEFAULT_HOST = "reference"
DEFAULT_CLOCK = "measured"
DEFAULT_STEPS = "10"
DEFAULT_WARMUP = 1
DEFAULT_TIMEOUT = "30m"
DEFAULT_CPU_COUNT = 8  # where the host profile is silent


@dataclass(frozen=True)
class SandboxOptions:
    """What only `sandbox` knows."""

    image: str | None = None
    base_image: str | None = None
    torch: str | None = None
    requirements: Path | None = None
    ca_bundle: Path | None = None
    mounts: tuple[str, ...] = ()
    cpus: str | None = None
    memory: str | None = None
    shm_size: str | None = None
    network: str = "none"


@dataclass(frozen=True)
class RunOptions:
    """Everything the user asked for. None: not given, the profile or the default decides."""

    script: str | None = None
    module: str | None = None
    arguments: tuple[str, ...] = ()
    gpus: int = DEFAULT_GPUS
    gpus_per_node: int | None = None
    gpu: str | None = None
    cluster: str = DEFAULT_CLUSTER
    host: str = DEFAULT_HOST
    clock: str = DEFAULT_CLOCK
    steps: str = DEFAULT_STEPS
    warmup: int = DEFAULT_WARMUP
    out: Path | None = None
    name: str | None = None
    force: bool = False
    fail_if: tuple[str, ...] = ()
    tui: bool | None = None
    quiet: bool = False
    json: bool = False
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    environment: tuple[str, ...] = ()
    seed: int = 0
    timeout: str = DEFAULT_TIMEOUT
    python: Path | None = None
    sandbox: SandboxOptions = field(default_factory=SandboxOptions)
    command: tuple[str, ...] = ()

    @property
    def parallel(self) -> dict[str, int]:
        """The parallel sizes by their short names, as in `{tp}`."""
        return {
            "tp": self.tensor_parallel,
            "pp": self.pipeline_parallel,
            "dp": self.data_parallel,
            "cp": self.context_parallel,
            "ep": self.expert_parallel,
        }
