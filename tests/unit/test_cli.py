"""The command line: options, exit codes, errors; golden help. Needs no torch and no native files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from phantora import launch, resolve, run_directory
from phantora.cli import app
from phantora.errors import PhantoraError, UsageError
from phantora.options import RunOptions

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def collected(monkeypatch, tmp_path):
    """Runs `phantora ARGS` up to the point where the launcher would start, and returns the options it was given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")

    def run(*arguments):
        seen = []
        monkeypatch.setattr(launch, "run", lambda options: seen.append(options) or 0)
        result = CliRunner().invoke(app, ["run", *arguments], prog_name="phantora", catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return seen[0]

    return run


def test_defaults_are_those_of_the_contract(collected):
    options = collected("train.py")
    assert (options.gpus, options.cluster, options.host, options.clock) == (8, "dgx-h100", "reference", "measured")
    assert (options.steps, options.warmup, options.seed, options.timeout) == ("10", 1, 0, "30m")
    assert options.gpu is None and options.gpus_per_node is None
    content = resolve.run_json(options)
    assert content["launch"]["gpu"] == "h100-sxm-80gb"
    assert content["launch"]["gpus_per_node"] == 8


def test_options_stand_before_or_after_the_script_and_arguments_after_dashes(collected):
    before = collected("--gpus", "4", "--clock", "modelled", "train.py", "--", "--gpus", "7", "--", "x")
    after = collected("train.py", "--gpus", "4", "--clock", "modelled", "--", "--gpus", "7", "--", "x")
    assert before.gpus == after.gpus == 4
    assert before.arguments == after.arguments == ("--gpus", "7", "--", "x")


def test_module(collected):
    options = collected("-m", "torchtitan.train", "--gpus", "2", "--", "--model", "x")
    assert (options.module, options.script, options.arguments) == ("torchtitan.train", None, ("--model", "x"))


def test_parallel_sizes_go_into_script_arguments(collected):
    options = collected("train.py", "--tp", "2", "--dp", "4", "--", "--tp={tp}", "{dp}x{pp}", "{other}")
    content = resolve.run_json(options)
    assert content["launch"]["arguments"] == ["--tp=2", "4x1", "{other}"]
    assert content["launch"]["parallel"] == {"tp": 2, "pp": 1, "dp": 4, "cp": 1, "ep": 1}


def test_the_product_of_parallel_sizes_must_be_the_number_of_gpus(collected):
    with pytest.raises(UsageError, match="product is --gpus 8; found tp 2 x dp 2 = 4"):
        resolve.run_json(collected("train.py", "--tp", "2", "--dp", "2"))
    # Experts spread over the ranks that --dp counts, or over ranks of their own.
    for sizes in (("--dp", "8", "--ep", "4"), ("--dp", "2", "--ep", "4")):
        assert resolve.run_json(collected("train.py", *sizes))["launch"]["parallel"]["ep"] == 4


def test_gpu_and_gpus_per_node_win_over_the_cluster_and_are_noted(collected):
    content = resolve.run_json(collected("train.py", "--gpu", "h100-96gb-500w", "--gpus-per-node", "4"))
    assert content["core"]["gpu.total_bytes"] == 102048464896
    assert (content["launch"]["gpus_per_node"], content["launch"]["nodes"]) == (4, 2)
    assert content["notes"] == [
        "--gpu h100-96gb-500w replaces the GPU of cluster dgx-h100, h100-sxm-80gb.",
        "--gpus-per-node 4 replaces the 8 of cluster dgx-h100.",
    ]


def test_fewer_gpus_than_a_node_has_are_one_smaller_node(collected):
    content = resolve.run_json(collected("train.py", "--gpus", "2"))
    assert (content["core"]["gpus_per_node"], content["core"]["nodes"], content["notes"]) == (2, 1, [])


def test_core_lines_have_no_sources_and_relative_tables(collected):
    core = resolve.run_json(collected("train.py"))["core"]
    assert not [key for key in core if key.endswith("_source")]
    assert core["table.gemm"].startswith("tables/")
    assert core["host.launch_latency"] > 0 and core["cluster.nvlink_bytes_per_s"] > 0
    assert core["steps"] == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"script": "gone.py"}, "Wanted the script gone.py; found no such file"),
        ({"script": None}, "Wanted a SCRIPT or -m MODULE; found neither"),
        ({"gpus": 12}, "a multiple of 8 GPUs per node; found 12"),
        ({"gpu": "b200"}, "a gpu profile 'b200'; found none of that name"),
        ({"steps": "0"}, "--steps from 1 to"),
        ({"timeout": "soon"}, "is not a duration"),
        ({"fail_if": ("speed>1",)}, "is not a condition"),
        ({"environment": ("A",)}, "--env K=V"),
        ({"clock": "real"}, "--clock measured or modelled"),
    ],
)
def test_what_cannot_be_understood_is_exit_code_2(monkeypatch, tmp_path, change, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        resolve.run_json(RunOptions(**({"script": "train.py"} | change)))
    assert caught.value.code == 2


def test_errors_are_one_plain_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "phantora", "run", "gone.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "phantora: Wanted the script gone.py; found no such file. Check the path.\n"


def test_script_arguments_before_the_dashes_are_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "phantora", "run", "a.py", "b"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Wanted script arguments after --; found 'b' before it." in done.stderr


def test_missing_native_files_are_exit_code_3(tmp_path):
    (tmp_path / "train.py").write_text("")
    code = "import phantora.native as n; n.candidates = lambda: []; import phantora.cli as c; c.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "make native" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_the_host_side_imports_neither_torch_nor_docker_nor_textual():
    code = "import sys, phantora.cli; print([m for m in ('torch', 'docker', 'textual', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- run directories ----------------------------------------------------------------------------------------------


def test_directories_are_counted(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    options = RunOptions(script="a/train.py")
    assert [run_directory.make(options).name for _ in range(3)] == ["train-1", "train-2", "train-3"]


def test_an_earlier_run_is_only_replaced_by_force(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    folder = run_directory.make(RunOptions(script="train.py", name="x"))
    (folder / "run.json").write_text("{}")
    (folder / "oplog").write_text("old")
    with pytest.raises(UsageError, match="Add --force"):
        run_directory.make(RunOptions(script="train.py", name="x"))
    assert run_directory.make(RunOptions(script="train.py", name="x", force=True)) == folder
    assert sorted(path.name for path in folder.iterdir()) == ["ranks"]


def test_a_folder_with_other_files_is_never_cleared(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text").write_text("dear")
    with pytest.raises(UsageError, match="other files"):
        run_directory.make(RunOptions(script="train.py", out=Path("thesis"), force=True))
    assert (tmp_path / "thesis" / "text").read_text() == "dear"


# ---- help ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["", "run", "sandbox", "top", "report", "profiles"])
def test_help_is_as_recorded(command):
    arguments = [command, "--help"] if command else ["--help"]
    result = CliRunner().invoke(app, arguments, prog_name="phantora", env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    assert result.exit_code == 0
    golden = GOLDEN / f"help_{command or 'phantora'}.txt"
    if os.environ.get("PHANTORA_UPDATE_GOLDEN"):
        golden.write_text(result.output)
    assert result.output == golden.read_text(), "run again with PHANTORA_UPDATE_GOLDEN=1 if the change is meant"


def test_commands_of_later_versions_are_not_listed():
    output = CliRunner().invoke(app, ["--help"], prog_name="phantora").output
    listed = re.findall(r"^  ([a-z]+) ", output, re.MULTILINE)
    assert set(listed) == {"run", "sandbox", "top", "report", "profiles", "image", "doctor", "version"}


# ---- report -------------------------------------------------------------------------------------------------------


def test_report_of_a_run_that_has_not_ended(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(PhantoraError, match="has not ended yet"):
        CliRunner().invoke(app, ["report", "."], catch_exceptions=False)


def test_report_html_is_refused_clearly(monkeypatch, tmp_path):
    with pytest.raises(UsageError, match="this version does not make"):
        CliRunner().invoke(app, ["report", "x", "--html"], catch_exceptions=False)


def test_report_json_is_the_file_itself(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "report.json").write_text(json.dumps({"schema": 1}) + "\n")
    result = CliRunner().invoke(app, ["report", ".", "--json"], catch_exceptions=False)
    assert result.output == '{"schema": 1}\n'
