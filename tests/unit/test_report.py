"""report.json: verdicts, exit codes, conditions, and how it is rendered."""

import copy
import json
import os
from pathlib import Path

import pytest

from phantora import report_text
from phantora_runtime import report, settings
from phantora_runtime.ending import Ending, Reason
from phantora_runtime.exit_codes import ExitCode
from phantora_runtime.quantities import (
    QuantityError,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_condition,
    parse_duration_ns,
)

GOLDEN = Path(__file__).parents[1] / "golden"
GIB = 2**30

CORE = {
    "verdict": "ok",
    "steps": [
        {
            "index": index,
            "duration_ns": 1_500_000_000 + index,
            "compute_ns": 1_000_000_000,
            "communication_exposed_ns": 300_000_000,
            "host_exposed_ns": 200_000_000,
            "idle_ns": index,
        }
        for index in range(3)
    ],
    "step_time_ns": {"median": 1_500_000_001, "min": 1_500_000_001, "max": 1_500_000_002, "spread": 0.05},
    "memory": {
        "capacity_bytes": 80 * GIB,
        "peak_device_bytes": 70 * GIB,
        "peak_rank": 1,
        "caught_oom": 0,
        "ranks": [],
    },
    "late_ops": 0,
    "costs": {"measured": 0.7, "interpolated": 0.1, "analytical": 0.15, "calibrated": 0.0, "unknown": 0.05},
    "unknown_kernels": [{"name": "mystery_kernel", "launches": 12, "time_ns": 4_000_000}],
    "communication": [
        {
            "op": "all_gather",
            "group": "default",
            "calls": 9,
            "bytes": 3 * GIB,
            "time_ns": 10**9,
            "exposed_ns": 3 * 10**8,
        }
    ],
    "notes": ["from the core"],
}


def make_run(**launch):
    values = {
        "python": "python",
        "directory": "/",
        "world_size": 2,
        "gpus_per_node": 2,
        "nodes": 1,
        "steps": 3,
        "warmup": 1,
        "timeout_ns": 60 * 10**9,
        "gpu": "h100-sxm-80gb",
        "cluster": "dgx-h100",
        "clock": "modelled",
    }
    return settings.Run(
        Path("/run"), settings.Launch(**(values | launch)), {"gpu.total_bytes": 80 * GIB}, ["noted"], {}
    )


def build(core=CORE, ending=None, **launch):
    ending = ending or Ending(torch_version="2.14.1")
    real = {"wall_s": 9.0, "cpu_s": 12.5, "peak_host_bytes": 3 * GIB}
    made = report.build(make_run(**launch), copy.deepcopy(core), ending, real, "abc")
    return made, report.exit_code(made, ending)


def test_a_good_run():
    made, code = build()
    assert (made["verdict"], code) == ("ok", ExitCode.DONE)
    assert made["message"] == "2 x h100-sxm-80gb ran 3 steps, 1.5 s each, peak device memory 70.00 GiB of 80.00 GiB."
    assert made["real"]["simulated_per_wall"] == pytest.approx(0.5, abs=1e-6)
    assert made["notes"][:2] == ["noted", "from the core"]


def test_what_was_found_in_ten_lines():
    kernels = [
        {"name": "k", "label": "gemm 1x2x3", "launches": 9, "time_ns": 3 * 10**9, "source": "interpolated"},
        {"name": "l", "label": "softmax", "launches": 9, "time_ns": 10**9, "source": "analytical"},
    ]
    made, _ = build(core=CORE | {"top_kernels": kernels})
    assert report.overview(made) == [
        "step      1.5 s (median, +-5% by what is known of its costs)",
        "made of   compute 67%, exposed communication 20%, host 13%, idle 0%",
        "memory    70.00 GiB of 80.00 GiB at the peak (rank 1), 10.00 GiB left",
        "kernel 1  75% gemm 1x2x3 (interpolated)",
        "kernel 2  25% softmax (analytical)",
        "costs     measured 70%, interpolated 10%, analytical 15%, unknown 5%",
        "took      9 s, 12 s of CPU, 3.00 GiB of this machine's memory",
    ]
    without, _ = build(core=None, ending=Ending(Reason.CORE_FAULT, fault="it fell"))
    assert [line.split()[0] for line in report.overview(without)] == ["memory", "took"]


def test_schema_1_has_every_key_even_without_a_core():
    made, _ = build(core=None, ending=Ending(Reason.CORE_FAULT, fault="it fell"))
    assert set(made) == {
        "schema", "verdict", "message", "failed_conditions", "world_size", "nodes", "gpu", "cluster", "clock", "torch",
        "steps", "step_time_ns", "memory", "oom", "hang", "mismatch", "notes", "late_ops", "order_errors", "costs",
        "unknown_kernels",
        "communication", "top_kernels", "real", "digest",
    }  # fmt: skip
    assert set(made["costs"]) == {"measured", "interpolated", "analytical", "calibrated", "unknown"}
    assert made["step_time_ns"]["median"] is None


@pytest.mark.parametrize(
    ("ending", "core", "verdict", "code"),
    [
        (Ending(Reason.CORE_FAULT, fault="x"), None, "failed", 5),
        (Ending(Reason.TIMEOUT), CORE, "stopped", 124),
        (Ending(Reason.INTERRUPTED), CORE, "stopped", 130),
        (Ending(Reason.CORE_VERDICT), CORE | {"verdict": "hang", "hang": {"a": 1}, "message": "stuck"}, "hang", 4),
        (Ending(Reason.RANK_FAILED, rank=1, status=3), CORE | {"verdict": "mismatch"}, "mismatch", 4),
        (Ending(Reason.RANK_FAILED, rank=1, status=3), CORE, "failed", 1),
        (Ending(Reason.RANK_FAILED, rank=1, status=-11), CORE, "failed", 1),
        (
            Ending(Reason.CORE_VERDICT),
            CORE | {"verdict": "failed", "message": "rank 1 sent a torn record"},
            "failed",
            1,
        ),
    ],
)
def test_verdicts_and_exit_codes(ending, core, verdict, code):
    made, found = build(core=core, ending=ending)
    assert (made["verdict"], int(found)) == (verdict, code)
    assert made["message"]


def test_signals_are_named():
    made, _ = build(ending=Ending(Reason.RANK_FAILED, rank=1, status=-11))
    assert "Rank 1 failed (killed by SIGSEGV)" in made["message"]


def oom_ending(**change):
    found = {
        "requested_bytes": 2 * GIB,
        "reserved_bytes": 79 * GIB,
        "allocated_bytes": 78 * GIB,
        "inactive_split_bytes": 0,
    } | change
    exception = {"type": "OutOfMemoryError", "message": "x", "oom": found, "step": 1, "phase": "backward"}
    return Ending(Reason.RANK_FAILED, rank=1, status=1, exception=exception, oom_errors={1: 1})


def test_out_of_memory_names_rank_step_phase_and_sizes():
    made, code = build(ending=oom_ending())
    assert (made["verdict"], code) == ("oom", ExitCode.VERDICT)
    oom = made["oom"]
    assert (oom["rank"], oom["step"], oom["phase"], oom["requested_bytes"]) == (1, 1, "backward", 2 * GIB)
    assert oom["capacity_bytes"] == 80 * GIB and "2.00 GiB more" in oom["advice"]
    assert made["memory"]["caught_oom"] == 0  # the fatal one is not a survived one


def test_fragmentation_gets_its_own_advice():
    made, _ = build(ending=oom_ending(inactive_split_bytes=3 * GIB))
    assert "expandable_segments" in made["oom"]["advice"]


def test_survived_errors_count_but_do_not_change_the_verdict():
    made, code = build(ending=Ending(oom_errors={0: 2}))
    assert (made["verdict"], made["memory"]["caught_oom"], code) == ("ok", 2, ExitCode.DONE)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("oom", False), ("step>1.5s", True), ("step>1.6s", False), ("memory>70GiB", False), ("memory>69GiB", True),
        ("unknown>5%", False), ("unknown>4.9%", True),
    ],
)  # fmt: skip
def test_conditions(condition, holds):
    made, code = build(fail_if=[condition])
    assert made["failed_conditions"] == ([condition] if holds else [])
    assert made["verdict"] == "ok"
    assert code == (ExitCode.VERDICT if holds else ExitCode.DONE)


def test_no_steps_and_too_few_steps_are_noted():
    none = {"median": None, "min": None, "max": None, "spread": None}
    made, _ = build(core=CORE | {"steps": [], "step_time_ns": none})
    assert "no optimizer step was seen, so there are no step times." in made["notes"]
    made, _ = build(core=CORE | {"steps": CORE["steps"][:1], "step_time_ns": none})
    assert "there are only 1 steps, no more than --warmup, so there is no median." in made["notes"]


def test_late_ops_are_noted():
    made, _ = build(core=CORE | {"late_ops": 3})
    assert any("3 ops arrived after their time was final" in note for note in made["notes"])


@pytest.mark.parametrize("markdown", [False, True])
def test_rendering_is_as_recorded(markdown):
    made, _ = build(ending=oom_ending())
    text = report_text.render(json.loads(json.dumps(made)), markdown=markdown)
    golden = GOLDEN / ("report.md" if markdown else "report.txt")
    if os.environ.get("PHANTORA_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text(), "run again with PHANTORA_UPDATE_GOLDEN=1 if the change is meant"


# ---- quantities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ns"),
    [("90s", 90 * 10**9), ("30m", 1800 * 10**9), ("1.5h", 5400 * 10**9), ("250ms", 250 * 10**6), ("2", 2 * 10**9)],
)
def test_durations(text, ns):
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "count"), [("76GiB", 76 * GIB), ("80GB", 80 * 10**9), ("512m", 512 * 2**20), ("7", 7)]
)
def test_sizes(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "1.5", "step>", "step>fast", "memory>1parsec", "unknown>x%", "step<1s", "oom>1"])
def test_what_is_no_condition(text):
    with pytest.raises(QuantityError):
        parse_condition(text)


def test_formats():
    assert [format_duration(ns) for ns in (412, 3_210_000, 1_204_000_000, 125 * 10**9)] == [
        "412 ns", "3.21 ms", "1.204 s", "2 min 05 s",
    ]  # fmt: skip
    assert [format_bytes(n) for n in (512, 20 * 2**20, 84_932_558_848)] == ["512 B", "20.0 MiB", "79.10 GiB"]


def test_a_hang_shows_each_ranks_own_frames():
    text = 'Thread 0x2 (most recent call first):\n  File "/home/me/train.py", line 7 in step\n'
    core = CORE | {"verdict": "hang", "hang": {"ranks": [{"rank": 0, "child": 0}, {"rank": 1, "child": 0}]}}
    made, _ = build(core=core, ending=Ending(Reason.CORE_VERDICT, stacks={1: text}))
    assert made["hang"]["ranks"] == [
        {"rank": 0, "child": 0},
        {"rank": 1, "child": 0, "python_stack": ["/home/me/train.py:7 in step"]},
    ]
