"""Every profile has its fields, and every number in it says where it comes from."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from phantora import profile_form

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ROOT / "profiles"
KINDS = {"gpu": "gpus", "host": "hosts", "cluster": "clusters"}
FILES = [(kind, path) for kind, folder in KINDS.items() for path in sorted((PROFILES / folder).glob("*.toml"))]
WIRE = ROOT / "shim" / "include" / "phantora" / "wire.hpp"


def load(path: Path) -> dict:
    return tomllib.loads(path.read_text())


def wire_gpu_fields() -> set[str]:
    body = re.search(r"struct GpuProperties \{(.*?)\n\};", WIRE.read_text(), re.S)
    assert body
    code = re.sub(r"//.*", "", body.group(1))
    names = re.findall(r"(\w+)(?:\[\d+\])?\s*[,;]", code)
    return {name for name in names if name != "spare"}


def call_kinds() -> set[str]:
    body = re.search(r"enum class CallKind .*?\{(.*?)\};", WIRE.read_text(), re.S)
    assert body
    names = re.findall(r"\bk(\w+)", re.sub(r"//.*", "", body.group(1)))
    return {name.lower() for name in names if name != "Count"}


def read_by_the_cost_models() -> set[str]:
    text = (ROOT / "runtime" / "core" / "src" / "cost" / "parameters.cpp").read_text()
    return {f"{kind}.{key}" for kind, key in re.findall(r'\b(gpu|cluster)\("(\w+)"\)', text)}


@pytest.mark.parametrize(("kind", "path"), FILES, ids=[path.stem for _, path in FILES])
def test_form_and_sources(kind, path):
    data = load(path)
    assert (data["schema"], data["kind"], data["name"]) == (1, kind, path.stem)
    assert data["summary"]
    assert set(data) <= {"schema", "kind", "name", "summary", kind, "tables"}
    section = data[kind]
    for key, value in section.items():
        assert isinstance(value, str | int | float) and not isinstance(value, bool), key
        if key.endswith("_source"):
            assert key.removesuffix("_source") in section, f"{key} belongs to no number"
            assert isinstance(value, str) and len(value) >= 7, f"{key} says nothing"
        else:
            assert f"{key}_source" in section, f"{path.name}: {key} names no source; say where it is from, or `assumed`"
    for name in data.get("tables", {}).values():
        head = (PROFILES / "tables" / name).read_text()[:2000]
        assert "# source: " in head and "# licence: " in head, f"{name} names no source"
        assert (PROFILES / "tables" / name).stat().st_size < 2_000_000


def test_the_promised_profiles_are_there():
    names = {path.stem for _, path in FILES}
    assert {"h100-sxm-80gb", "h100-96gb-500w", "dgx-h100", "reference"} <= names


@pytest.mark.parametrize("path", sorted((PROFILES / "gpus").glob("*.toml")), ids=lambda path: path.stem)
def test_a_gpu_has_all_that_the_shim_and_the_cost_models_read(path):
    section = load(path)["gpu"]
    assert wire_gpu_fields() and not wire_gpu_fields() - set(section)
    needed = {key.removeprefix("gpu.") for key in read_by_the_cost_models() if key.startswith("gpu.")}
    assert len(needed) > 20 and not needed - set(section)
    assert set(load(path)["tables"]) == {"gemm", "attention", "nccl"}


def test_a_cluster_has_all_that_the_cost_models_read():
    needed = {key.removeprefix("cluster.") for key in read_by_the_cost_models() if key.startswith("cluster.")}
    assert len(needed) > 15
    for path in (PROFILES / "clusters").glob("*.toml"):
        assert not needed - set(load(path)["cluster"])


def test_what_the_cost_models_want_positive_may_not_be_zero():
    assert not {key.partition(".")[2] for key in read_by_the_cost_models()} & profile_form.MAY_BE_ZERO


def test_a_host_has_every_class_of_call():
    kinds = call_kinds()
    assert {"launch", "op", "eventrecord"} <= kinds
    for path in (PROFILES / "hosts").glob("*.toml"):
        section = load(path)["host"]
        assert not (kinds | {"launch_latency", "cpu_model"}) - set(section)
        assert section["free"] == 0
        assert all(section[kind] > 0 for kind in kinds - {"free"}), "a call that costs nothing is of kind `free`"


def test_capacity_is_what_cudamemgetinfo_says():
    gib = 2**30
    totals = {path.stem: load(path)["gpu"]["total_bytes"] / gib for path in (PROFILES / "gpus").glob("*.toml")}
    assert round(totals["h100-sxm-80gb"], 2) == 79.10
    assert round(totals["h100-96gb-500w"], 2) == 95.04


def test_memory_clock_and_bus_give_the_bandwidth():
    for path in (PROFILES / "gpus").glob("*.toml"):
        gpu = load(path)["gpu"]
        by_clock = gpu["memory_clock_khz"] * 1e3 * 2 * gpu["memory_bus_bits"] / 8
        assert abs(by_clock / gpu["hbm_bytes_per_s"] - 1) < 0.01, path.stem


def test_every_table_is_in_the_notice():
    notice = (PROFILES / "tables" / "NOTICE.md").read_text()
    for path in (PROFILES / "tables").glob("*.txt"):
        assert path.name in notice
