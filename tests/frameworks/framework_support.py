"""What the framework tests share."""

from __future__ import annotations

from dataclasses import dataclass

GPUS = 16  # two nodes of eight
PROBE = "tests/frameworks/memory_probe.py"


@dataclass(frozen=True)
class Run:
    """A finished run."""

    report: dict
    log: str  # rank 0's output
    command: str

    def traffic(self) -> dict[str, int]:
        """Bytes by operation, over all groups."""
        total: dict[str, int] = {}
        for entry in self.report["communication"]:
            total[entry["op"]] = total.get(entry["op"], 0) + entry["bytes"]
        return total

    def calls(self, op: str) -> int:
        return sum(entry["calls"] for entry in self.report["communication"] if entry["op"] == op)

    def probe(self) -> dict[str, int]:
        """What memory_probe.py said."""
        lines = [line.split() for line in self.log.splitlines() if line.startswith("PROBE ")]
        return {name: int(value) for _, name, value in lines}

    def assert_sound(self, steps: int) -> None:
        """The checks every run must pass."""
        assert self.report["verdict"] == "ok", f"{self.command}\n{self.report['message']}"
        assert len(self.report["steps"]) == steps, self.command
        assert self.report["late_ops"] == 0, self.command
        assert self.log.count("\nstep ") + self.log.startswith("step ") == steps, f"{self.command}\n{self.log}"


def rounded(sizes: list[int]) -> int:
    """The caching allocator's unit is 512 bytes a tensor."""
    return sum(-(-size // 512) * 512 for size in sizes)
