"""Renders report.json for people: plain text or Markdown. Reads nothing but the report."""

from __future__ import annotations

from typing import Any

from phantora_runtime.quantities import format_bytes, format_duration

_MAX_ROWS = 12


def render(report: dict[str, Any], markdown: bool = False) -> str:
    """Returns the report as text.

    Args:
        report: report.json, schema 1.
        markdown: Markdown instead of plain text.
    """
    writer = _Writer(markdown)
    writer.title(f"{report['verdict']}: {report['message']}")
    gpus = f"{report['world_size']} x {report['gpu']}, {report['nodes']} node(s) of {report['cluster']}"
    writer.pairs([("cluster", gpus), ("clock", str(report["clock"])), ("torch", str(report["torch"]))])
    if report["failed_conditions"]:
        writer.pairs([("failed conditions", ", ".join(report["failed_conditions"]))])
    _steps(writer, report)
    _memory(writer, report)
    _verdict_details(writer, report)
    _costs(writer, report)
    _communication(writer, report)
    if report["notes"]:
        writer.heading("Check before trusting this")
        writer.items(report["notes"])
    real = report["real"]
    writer.heading("Real")
    writer.pairs(
        [
            ("wall", f"{real['wall_s']:.1f} s"),
            ("CPU", f"{real['cpu_s']:.1f} s"),
            ("peak host memory", format_bytes(real["peak_host_bytes"])),
            ("digest", str(report["digest"])),
        ]
    )
    return writer.text()


def _steps(writer: _Writer, report: dict[str, Any]) -> None:
    writer.heading("Steps")
    times = report["step_time_ns"]
    if times["median"] is not None:
        spread = f", spread {times['spread']:.1%}" if times.get("spread") is not None else ""
        writer.pairs(
            [
                ("median", format_duration(times["median"])),
                ("range", f"{format_duration(times['min'])} to {format_duration(times['max'])}{spread}"),
            ]
        )
    parts = ("duration_ns", "compute_ns", "communication_exposed_ns", "host_exposed_ns", "idle_ns")
    rows = [[str(step["index"]), *(format_duration(step[part]) for part in parts)] for step in report["steps"]]
    if len(rows) > _MAX_ROWS:
        rows = [*rows[: _MAX_ROWS - 1], ["...", *[""] * len(parts)], rows[-1]]
    if rows:
        writer.table(["step", "duration", "compute", "communication", "host", "idle"], rows)


def _memory(writer: _Writer, report: dict[str, Any]) -> None:
    memory = report["memory"]
    writer.heading("Device memory")
    writer.pairs(
        [
            ("capacity", format_bytes(memory["capacity_bytes"])),
            ("peak", f"{format_bytes(memory['peak_device_bytes'])} on rank {memory['peak_rank']}"),
        ]
    )
    if memory.get("caught_oom"):
        writer.pairs([("out-of-memory errors survived", str(memory["caught_oom"]))])


def _verdict_details(writer: _Writer, report: dict[str, Any]) -> None:
    for key in ("oom", "hang", "mismatch"):
        if report.get(key):
            writer.heading(key)
            writer.tree(report[key])


def _costs(writer: _Writer, report: dict[str, Any]) -> None:
    costs = report["costs"]
    if not costs or any(share is None for share in costs.values()):
        return
    writer.heading("Where the durations come from (share of GPU busy time)")
    writer.pairs([(source, f"{share:.1%}") for source, share in costs.items()])
    rows = [
        [kernel["name"], str(kernel["launches"]), format_duration(kernel["time_ns"])]
        for kernel in report["unknown_kernels"][:_MAX_ROWS]
    ]
    if rows:
        writer.table(["unknown kernel", "launches", "time"], rows)


def _communication(writer: _Writer, report: dict[str, Any]) -> None:
    rows = [
        [
            row["op"],
            row["group"],
            str(row["calls"]),
            format_bytes(row["bytes"]),
            format_duration(row["time_ns"]),
            format_duration(row["exposed_ns"]),
        ]
        for row in report["communication"][:_MAX_ROWS]
    ]
    if rows:
        writer.heading("Communication (rank 0)")
        writer.table(["op", "group", "calls", "bytes", "time", "exposed"], rows)


class _Writer:
    def __init__(self, markdown: bool) -> None:
        self._markdown = markdown
        self._lines: list[str] = []

    def text(self) -> str:
        return "\n".join(self._lines).rstrip("\n") + "\n"

    def title(self, text: str) -> None:
        self._lines += [f"# {text}", ""] if self._markdown else [text, ""]

    def heading(self, text: str) -> None:
        if self._lines and self._lines[-1]:
            self._lines.append("")
        self._lines += [f"## {text}", ""] if self._markdown else [text]

    def pairs(self, pairs: list[tuple[str, str]]) -> None:
        for key, value in pairs:
            self._lines.append(f"- {key}: {value}" if self._markdown else f"  {key}: {value}")

    def items(self, items: list[str]) -> None:
        self._lines += [f"- {item}" if self._markdown else f"  - {item}" for item in items]

    def table(self, header: list[str], rows: list[list[str]]) -> None:
        if self._markdown:
            self._lines += ["", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
            self._lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
            return
        widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
        for row in [header, *rows]:
            self._lines.append(
                "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            )

    def tree(self, value: Any, indent: int = 1) -> None:
        pad = "  " * indent + ("- " if self._markdown else "")
        if isinstance(value, dict):
            for key, item in value.items():
                if isinstance(item, (dict, list)):
                    self._lines.append(f"{pad}{key}:")
                    self.tree(item, indent + 1)
                else:
                    self._lines.append(f"{pad}{key}: {_scalar(key, item)}")
        elif isinstance(value, list):
            for item in value:
                self.tree(item, indent)
        else:
            self._lines += [pad + line for line in str(value).splitlines()]


def _scalar(key: str, value: Any) -> str:
    if key.endswith("_bytes") and isinstance(value, int):
        return format_bytes(value)
    if key.endswith("_ns") and isinstance(value, int):
        return format_duration(value)
    return str(value).replace("\n", "\n      ")
