"""report.json, schema 1: what the core measured, how the run ended, and what it cost in reality."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

from phantora_runtime import files, settings, stacks
from phantora_runtime.ending import Ending, Reason
from phantora_runtime.exit_codes import ExitCode
from phantora_runtime.quantities import Condition, format_bytes, format_duration, parse_condition

_SOURCES = ("measured", "interpolated", "analytical", "calibrated", "unknown")
_FROM_CORE = (
    "steps",
    "step_time_ns",
    "memory",
    "hang",
    "mismatch",
    "late_ops",
    "order_errors",
    "costs",
    "unknown_kernels",
    "communication",
    "ranks",
    "top_kernels",
)


def build(
    run: settings.Run, core: dict[str, Any] | None, ending: Ending, real: dict[str, Any], digest: str | None
) -> dict[str, Any]:
    """Merges everything known about the run.

    Args:
        run: Its description.
        core: core_report.json; None when there is none (null mode, or the core died).
        ending: How it ended.
        real: The section `real`, without `simulated_per_wall`.
        digest: SHA-256 of the canonical op log.
    """
    launch = run.launch
    report: dict[str, Any] = {
        "schema": 1,
        "verdict": "ok",
        "message": "",
        "failed_conditions": [],
        "world_size": launch.world_size,
        "nodes": launch.nodes,
        "gpu": launch.gpu,
        "cluster": launch.cluster,
        "clock": launch.clock,
        "torch": ending.torch_version,
        "steps": [],
        "step_time_ns": {"median": None, "min": None, "max": None, "spread": None},
        "memory": {
            "capacity_bytes": int(run.core.get("gpu.total_bytes", 0)),
            "peak_device_bytes": 0,
            "peak_rank": 0,
            "caught_oom": 0,
            "ranks": [],
        },
        "oom": None,
        "hang": None,
        "mismatch": None,
        "notes": [],
        "late_ops": 0,
        "order_errors": 0,
        "costs": dict.fromkeys(_SOURCES),
        "unknown_kernels": [],
        "communication": [],
        "top_kernels": [],
        "real": real,
        "digest": digest,
    }
    for key in _FROM_CORE:
        if core is not None and core.get(key) is not None:
            report[key] = core[key]
    _decide(report, core or {}, ending, launch.timeout_ns)
    report["notes"] = _notes(run, core or {}, ending, report)
    _add_stacks(report, ending)
    virtual_ns = (core or {}).get("virtual_ns") or sum(step["duration_ns"] for step in report["steps"])
    real["simulated_per_wall"] = virtual_ns / 1e9 / real["wall_s"] if real["wall_s"] > 0 else 0.0
    report["failed_conditions"] = [text for text in launch.fail_if if _holds(parse_condition(text), report)]
    if not report["message"]:
        report["message"] = _success_message(report)
    return report


def exit_code(report: dict[str, Any], ending: Ending) -> ExitCode:
    """Returns the exit code that goes with a report."""
    if ending.reason is Reason.CORE_FAULT:
        return ExitCode.OUR_BUG
    if ending.reason is Reason.TIMEOUT:
        return ExitCode.TIMEOUT
    if ending.reason is Reason.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if report["order_errors"]:
        return ExitCode.OUR_BUG
    if report["verdict"] in ("oom", "hang", "mismatch"):
        return ExitCode.VERDICT
    if report["verdict"] == "failed":
        return ExitCode.SCRIPT_FAILED
    return ExitCode.VERDICT if report["failed_conditions"] else ExitCode.DONE


def write(report: dict[str, Any], folder: Path) -> None:
    """Writes report.json."""
    files.write_own(folder / "report.json", json.dumps(report, indent=1) + "\n")


def append_event(report: dict[str, Any], folder: Path) -> None:
    """Ends the event stream with what the report found: the core alone does not know how ranks failed."""
    shown = ("verdict", "message", "failed_conditions", "step_time_ns", "oom", "real")
    line: dict[str, Any] = {"type": "report", "at_ns": (report["steps"] or [{}])[-1].get("end_ns", 0)}
    line |= {key: report[key] for key in shown} | {
        "peak_device_bytes": report["memory"]["peak_device_bytes"],
        "notes": report["notes"],
    }
    with files.open_own(folder / "events.jsonl", append=True) as events:
        events.write(json.dumps(line) + "\n")


def overview(report: dict[str, Any]) -> list[str]:
    """Returns what a run found in a few lines: step time and its parts, memory, kernels, costs, what it took."""
    lines = []
    times, memory, real = report["step_time_ns"], report["memory"], report["real"]
    if times.get("median") is not None:
        spread = f", +-{times['spread']:.0%} by what is known of its costs" if times.get("spread") else ""
        lines.append(f"step      {format_duration(times['median'])} (median{spread})")
        lines.append(f"made of   {_parts_of(report)}")
    if memory["capacity_bytes"]:
        left = memory["capacity_bytes"] - memory["peak_device_bytes"]
        lines.append(
            f"memory    {format_bytes(memory['peak_device_bytes'])} of {format_bytes(memory['capacity_bytes'])} "
            f"at the peak (rank {memory['peak_rank']}), {format_bytes(left)} left"
        )
    total = sum(kernel["time_ns"] for kernel in report["top_kernels"])
    for place, kernel in enumerate(report["top_kernels"][:3], start=1):
        share = f"{kernel['time_ns'] / total:.0%}" if total else "-"
        lines.append(f"kernel {place}  {share:>3} {kernel['label']} ({kernel['source']})")
    shares = [f"{name} {share:.0%}" for name, share in report["costs"].items() if share]
    if shares:
        lines.append(f"costs     {', '.join(shares)}")
    host = format_bytes(real["peak_host_bytes"])
    lines.append(f"took      {real['wall_s']:.0f} s, {real['cpu_s']:.0f} s of CPU, {host} of this machine's memory")
    return lines


def _parts_of(report: dict[str, Any]) -> str:
    """What the median step is made of; the step whose duration is nearest to the median."""
    median = report["step_time_ns"]["median"]
    step = min(report["steps"], key=lambda one: abs(one["duration_ns"] - median))
    parts = (
        ("compute", "compute_ns"),
        ("exposed communication", "communication_exposed_ns"),
        ("host", "host_exposed_ns"),
        ("idle", "idle_ns"),
    )
    return ", ".join(f"{name} {step[key] / max(1, step['duration_ns']):.0%}" for name, key in parts)


def summary(report: dict[str, Any], folder: str) -> str:
    """Returns the last line of a run: the verdict in a sentence and the next command."""
    failed = f" Failed: {', '.join(report['failed_conditions'])}." if report["failed_conditions"] else ""
    message = report["message"].rstrip()
    end = "" if message.endswith((".", "!", "?")) else "."
    return f"{report['verdict']}: {message}{end}{failed} Next: phantora report {shlex.quote(folder)}"


def _decide(report: dict[str, Any], core: dict[str, Any], ending: Ending, timeout_ns: int) -> None:
    """Sets verdict, message and oom."""
    memory = report["memory"]
    # What torch raised; the driver refuses several times before torch gives up.
    memory["caught_oom"] = sum(ending.oom_errors.values())
    if ending.reason is Reason.CORE_FAULT:
        report["verdict"], report["message"] = "failed", f"This is a bug in Phantora: {ending.fault}"
    elif ending.reason is Reason.INTERRUPTED:
        report["verdict"], report["message"] = "stopped", "The run was interrupted."
    elif ending.reason is Reason.TIMEOUT:
        report["verdict"] = "stopped"
        report["message"] = (
            f"The run took longer than --timeout {format_duration(timeout_ns)} of real time; "
            "ranks/*.log end with what every rank was doing."
        )
    elif ending.reason in (Reason.PARENT_LOST, Reason.DISK_FILLED, Reason.MEMORY_LIMIT):
        report["verdict"], report["message"] = "failed", ending.fault
    elif core.get("verdict") in ("hang", "mismatch"):
        report["verdict"] = core["verdict"]
        report["message"] = core.get("message") or f"The simulator found a {core['verdict']}."
    elif ending.reason is Reason.RANK_FAILED and ending.exception.get("oom"):
        _out_of_memory(report, ending, core.get("oom"))
    elif ending.reason is Reason.RANK_FAILED:
        report["verdict"] = "failed"
        report["message"] = f"Rank {ending.rank} failed ({ending.how()}); its output is in ranks/{ending.rank:05d}.log."
    elif core.get("verdict") == "failed":  # a malformed record, or a process that ended without a word
        report["verdict"] = "failed"
        report["message"] = core.get("message") or "The simulator ended the run."


def _out_of_memory(report: dict[str, Any], ending: Ending, from_core: dict[str, Any] | None) -> None:
    capacity = report["memory"]["capacity_bytes"]
    found = dict(ending.exception["oom"])
    unused = found.pop("inactive_split_bytes", 0)
    oom = {
        "rank": ending.rank,
        "step": ending.exception.get("step"),
        "phase": ending.exception.get("phase"),
        **found,
        "capacity_bytes": capacity,
    }
    for key, value in (from_core or {}).items():
        oom.setdefault(key, value)
    wanted = oom["requested_bytes"]
    if unused >= wanted > 0:
        advice = "Memory is fragmented: try --env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
    else:
        missing = max(0, oom["reserved_bytes"] + wanted - capacity)
        advice = (
            f"About {format_bytes(max(missing, wanted))} more would be needed for this request: lower the batch size, "
            "checkpoint activations, or shard over more GPUs."
        )
    oom["advice"] = advice
    report["verdict"], report["oom"] = "oom", oom
    report["memory"]["caught_oom"] = max(0, report["memory"]["caught_oom"] - 1)
    report["message"] = (
        f"Rank {ending.rank} ran out of device memory in step {oom['step']} ({oom['phase']}): asked for "
        f"{format_bytes(wanted)} with {format_bytes(oom['reserved_bytes'])} reserved of {format_bytes(capacity)}. "
        f"{advice}"
    )


def _notes(run: settings.Run, core: dict[str, Any], ending: Ending, report: dict[str, Any]) -> list[str]:
    notes = [*run.notes, *core.get("notes", []), *ending.notes]
    if run.null_mode:
        notes.append("PHANTORA_NULL=1: nothing was simulated; only the real figures mean something.")
        return notes
    if run.launch.clock == "modelled":
        notes.append("modelled clock: pure Python and numpy work of the script and its workers takes no virtual time.")
    else:
        notes.append(_measured_note(run.launch.world_size))
    if report["late_ops"]:
        notes.append(
            f"{report['late_ops']} ops arrived after their time was final; times may be off. Please report this."
        )
    times = report["step_time_ns"]
    if times.get("median") is None:
        if not report["steps"]:
            notes.append("no optimizer step was seen, so there are no step times.")
        else:
            notes.append(f"there are only {len(report['steps'])} steps, no more than --warmup, so there is no median.")
    return list(dict.fromkeys(str(note) for note in notes))


def _measured_note(world_size: int) -> str:
    """What the measured clock is in this version, said in every report that uses it."""
    text = (
        "measured clock, first form: calls and ops of ranks take the host profile's times, pure Python and numpy work "
        "of ranks takes none; only worker processes are measured"
    )
    cpus = os.cpu_count() or 1
    if world_size > cpus:
        text += f", and {world_size} ranks shared {cpus} CPUs, so that their times are too long"
    return text + "."


def _add_stacks(report: dict[str, Any], ending: Ending) -> None:
    """Puts the script's own frames, innermost first, beside each rank of a hang or mismatch."""
    for key in ("hang", "mismatch"):
        found = report.get(key)
        if not isinstance(found, dict):
            continue
        for row in found.get("ranks", []):
            text = ending.stacks.get(row.get("rank")) if not row.get("child") else None
            if text:
                row["python_stack"] = stacks.main_thread(text)


def _holds(condition: Condition, report: dict[str, Any]) -> bool:
    if condition.subject == "oom":
        return bool(report["verdict"] == "oom" or report["memory"]["caught_oom"])
    if condition.subject == "step":
        median = report["step_time_ns"]["median"]
        return median is not None and median > condition.limit
    if condition.subject == "memory":
        return bool(report["memory"]["peak_device_bytes"] > condition.limit)
    share = report["costs"].get("unknown")
    return share is not None and share > condition.limit


def _success_message(report: dict[str, Any]) -> str:
    count = len(report["steps"])
    parts = [f"{report['world_size']} x {report['gpu']} ran {count} step{'s' if count != 1 else ''}"]
    median = report["step_time_ns"]["median"]
    if median is not None:
        parts.append(f"{format_duration(median)} each")
    memory = report["memory"]
    if memory["peak_device_bytes"]:
        parts.append(
            f"peak device memory {format_bytes(memory['peak_device_bytes'])} "
            f"of {format_bytes(memory['capacity_bytes'])}"
        )
    return ", ".join(parts) + "."
