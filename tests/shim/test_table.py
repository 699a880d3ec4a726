"""The table of intercepted functions: it covers torch, what is made of it is strict, docs/coverage.md is up to date."""

from __future__ import annotations

import subprocess
import sys

import pytest
from shim_support import environment, need

TOOLS = "shim/tools"


def run(repository, *arguments):
    return subprocess.run([sys.executable, *arguments], cwd=repository, capture_output=True, text=True)


def test_every_function_that_torch_imports_has_a_row(repository):
    need("torch")
    answer = run(repository, f"{TOOLS}/check_symbols.py")
    assert answer.returncode == 0, answer.stdout
    assert int(answer.stdout.split()[0]) > 600


def test_coverage_is_as_generated(repository, tmp_path):
    made = tmp_path / "coverage.md"
    options = ("--table", "shim/table", "--out", str(tmp_path), "--docs", str(made))
    answer = run(repository, f"{TOOLS}/generate.py", *options)
    assert answer.returncode == 0, answer.stderr
    assert made.read_text() == (repository / "docs/coverage.md").read_text(), "run shim/tools/generate.py --docs"


def test_strict_stubs_are_only_those_that_refuse(repository, tmp_path):
    answer = run(repository, f"{TOOLS}/generate.py", "--table", "shim/table", "--out", str(tmp_path), "--strict")
    assert answer.returncode == 0, answer.stderr
    stubs = (tmp_path / "stubs.cpp").read_text()
    assert " cudaGraphLaunch()" in stubs and " cudaMalloc()" not in stubs and "weak" not in stubs
    assert '{"cuMemAlloc", &cuMemAlloc_v2}' in (tmp_path / "lookup.cpp").read_text()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("cudaMalloc\tEMULATE\tyes", "has a row in"),
        ("cudaNew\tSOMETIMES\tyes", "policy 'SOMETIMES' is none of"),
        ("cudaNew\tREFUSE\tmaybe", "hold `yes` or nothing"),
    ],
)
def test_bad_rows_are_named(repository, tmp_path, line, complaint):
    folder = tmp_path / "table"
    folder.mkdir()
    for file in (repository / "shim/table").glob("*.tsv"):
        text = file.read_text()
        (folder / file.name).write_text(text + line + "\n" if file.name == "driver.tsv" else text)
    answer = run(repository, f"{TOOLS}/generate.py", "--table", str(folder), "--out", str(tmp_path / "out"))
    assert answer.returncode != 0 and complaint in answer.stderr


def test_the_library_exports_the_rows_and_nothing_else(repository):
    from phantora.native import native_folder

    sys.path.insert(0, str(repository / TOOLS))
    from shim_table import read_libc, read_table

    library = native_folder() / "libphantora_shim.so"
    assert environment()["LD_PRELOAD"] == str(library)
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in lines.splitlines()}
    rows = {row.name for row in read_table(repository / "shim/table") if row.cuda13}
    assert rows <= exported
    extra = {name for name in exported - rows if not name.startswith("phantora_")}
    assert extra <= set(read_libc(repository / "shim/table"))
