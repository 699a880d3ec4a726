"""Bad input: one line that says what was wanted, what was found and what to do, the right exit code, nothing left.

Each case is a command line as a user types it. `phantora sandbox` is refused by the same words before it looks for a
Docker Engine; what needs one is in tests/integration/test_bad_input_sandbox.py.
"""

from __future__ import annotations

import ctypes
import gzip
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from phantora import cli
from phantora_tui.stream import EventStream

PROFILES = Path(__file__).resolve().parents[2] / "profiles"
LINE = re.compile(r"phantora: Wanted .+; found .+\. [A-Z].+\S")
USAGE, ENVIRONMENT = 2, 3
NOWHERE = "tcp://127.0.0.1:9"


@dataclass(frozen=True)
class Answer:
    command: str
    code: int
    out: str
    err: str


def environment_without_ours(**more: str) -> dict[str, str]:
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith("PHANTORA_") or key == "PHANTORA_NATIVE"
    }
    return {**kept, "DOCKER_HOST": NOWHERE, **more}


@pytest.fixture
def phantora(folder, monkeypatch, capfd):
    """Runs the command in this process, as a user in `folder` without a Docker Engine would."""
    monkeypatch.chdir(folder)
    for name in set(os.environ) - set(environment_without_ours()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)

    def call(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["phantora", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Answer(f"phantora {shlex.join(arguments)}", ended.value.code, *capfd.readouterr())

    return call


def in_a_process(folder: Path, *arguments: str, prepare: Callable[[], None] | None = None, **more: str) -> Answer:
    line = [sys.executable, "-m", "phantora", *arguments]
    done = subprocess.run(
        line, cwd=folder, env=environment_without_ours(**more), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        preexec_fn=prepare,
    )  # fmt: skip
    return Answer(shlex.join(line), done.returncode, done.stdout, done.stderr)


def assert_refused(answer: Answer, code: int, says: str) -> None:
    """One line on stderr, in the form of phantora/errors.py, and nothing on stdout."""
    shown = f"{answer.command}\nexit {answer.code}\n{answer.out}\n{answer.err}"
    lines = answer.err.splitlines()
    assert len(lines) == 1 and LINE.fullmatch(lines[0]), shown
    assert says in lines[0], shown
    assert (answer.code, answer.out) == (code, ""), shown


@pytest.fixture
def folder(tmp_path) -> Path:
    """A user's folder: a script, a folder without one, a folder of other things, an earlier run."""
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text").write_text("dear\n")
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "run.json").write_text("{}")
    (tmp_path / "no_python").write_text("nonsense")
    (tmp_path / "no_python").chmod(0o755)
    return tmp_path


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def without_privileges() -> None:
    """Root passes every permission check by two capabilities; without them it is a user like others."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


# ---- command lines of `run` and `sandbox` ---------------------------------------------------------------------------

NINES = "9" * 400
COMMAND_LINES = {
    "no script": ("", USAGE, "a SCRIPT or -m MODULE"),
    "missing script": ("gone.py", USAGE, "no such file"),
    "folder as script": ("empty", USAGE, "without a __main__.py"),
    "no module": ("-m ", USAGE, "a module for -m"),
    "script and module": ("train.py -m x", USAGE, "'train.py' before it"),
    "script argument": ("train.py x", USAGE, "'x' before it"),
    "zero GPUs": ("train.py --gpus 0", USAGE, "found 0"),
    "minus one GPU": ("train.py --gpus -1", USAGE, "found -1"),
    "too many GPUs": (f"train.py --gpus {NINES}", USAGE, "--gpus from 1 to"),
    "GPUs by word": ("train.py --gpus many", USAGE, "'--gpus'"),
    "half a GPU": ("train.py --gpus 1.5", USAGE, "'--gpus'"),
    "no number": ("train.py --gpus", USAGE, "requires an argument"),
    "unknown option": ("train.py --gpuss 1", USAGE, "--gpuss"),
    "unknown GPU": ("train.py --gpu b9000", USAGE, "a gpu profile 'b9000'"),
    "no GPU's name": ("train.py --gpu=", USAGE, "a gpu profile ''"),
    "unknown cluster": ("train.py --cluster abacus", USAGE, "a cluster profile 'abacus'"),
    "missing cluster file": ("train.py --cluster gone.toml", USAGE, "no such file"),
    "folder as cluster": ("train.py --cluster ./empty", USAGE, "no such file"),
    "unknown host": ("train.py --host laptop", USAGE, "a host profile 'laptop'"),
    "empty nodes": ("train.py --gpus-per-node 0", USAGE, "found 0"),
    "huge nodes": ("train.py --gpus-per-node 256 --gpus 512", USAGE, "1 to 255 GPUs per node"),
    "nodes by word": ("train.py --gpus-per-node all", USAGE, "'--gpus-per-node'"),
    "a broken node": ("train.py --gpus 12", USAGE, "a multiple of 8"),
    "no steps": ("train.py --steps 0", USAGE, "--steps from 1"),
    "steps by word": ("train.py --steps ten", USAGE, "--steps from 1"),
    "steps in another script": ("train.py --steps ²", USAGE, "--steps from 1"),
    "endless steps": (f"train.py --steps {NINES}", USAGE, "--steps from 1"),
    "negative warmup": ("train.py --warmup -1", USAGE, "--warmup from 0"),
    "endless warmup": (f"train.py --warmup {NINES}", USAGE, "--warmup from 0"),
    "negative seed": ("train.py --seed -1", USAGE, "--seed from 0"),
    "no time": ("train.py --timeout 0", USAGE, "above 0"),
    "negative time": ("train.py --timeout=-5s", USAGE, "'-5s' is not a duration"),
    "unknown unit": ("train.py --timeout 5parsec", USAGE, "'5parsec' is not a duration"),
    "endless time": (f"train.py --timeout {NINES}h", USAGE, "too large"),
    "unknown condition": ("train.py --fail-if speed>1", USAGE, "'speed>1' is not a condition"),
    "condition on nothing": ("train.py --fail-if unknown>nan%", USAGE, "'nan%' is not a share"),
    "huge condition": (f"train.py --fail-if memory>{NINES}TiB", USAGE, "too large"),
    "environment": ("train.py --env A", USAGE, "--env K=V"),
    "clock": ("train.py --clock sundial", USAGE, "--clock measured or modelled"),
    "parallel sizes": ("train.py --tp 3", USAGE, "product is --gpus 8"),
    "no terminal": ("train.py --tui", USAGE, "a terminal"),
    "path as name": ("train.py --name a/b", USAGE, "a plain name"),
    "no name": ("train.py --name=", USAGE, "a plain name"),
    "name of two lines": ("train.py --name a\nb", USAGE, "one line of text"),
    "two places": ("train.py --name a --out b", USAGE, "one of --out and --name"),
    "file as --out": ("train.py --out train.py", USAGE, "the file train.py"),
    "--out in a file": ("train.py --out train.py/x", ENVIRONMENT, "found a file"),
    "--out of others": ("train.py --out thesis", USAGE, "other files in thesis"),
    "--out of others by force": ("train.py --out thesis --force", USAGE, "other files in thesis"),
    "earlier run": ("train.py --out earlier", USAGE, "an earlier run in earlier"),
    "long name": (f"train.py --name {NINES}", USAGE, "one line of text"),
}


@pytest.mark.parametrize("verb", ["run", "sandbox"])
@pytest.mark.parametrize("case", COMMAND_LINES)
def test_a_command_line_is_refused(verb, case, folder, phantora):
    text, code, says = COMMAND_LINES[case]
    before = listing(folder)
    answer = phantora(verb, *text.split(" ")) if text else phantora(verb)
    if verb == "sandbox" and "a Docker Engine" in answer.err:
        pytest.fail(f"the Engine was asked first: {answer.err}")
    assert_refused(answer, code, says)
    assert listing(folder) == before


ONLY_RUN = {
    "--python is a folder": ("--python empty", "no executable file"),
    "--python is no program": ("--python ./no_python", "Exec format error"),
    "--python is another program": ("--python /bin/echo", "a CPython 3.10 or later"),
    "--python ends at once": ("--python /bin/true", "a CPython 3.10 or later"),
    "--out where no folder can be": ("--out /proc/x", "/proc/x"),
}


@pytest.mark.parametrize("case", ONLY_RUN)
def test_what_only_run_looks_at_is_refused(case, folder, phantora):
    text, says = ONLY_RUN[case]
    before = listing(folder)
    assert_refused(phantora("run", "train.py", *text.split()), ENVIRONMENT, says)
    assert listing(folder) == before


ONLY_SANDBOX = {
    "no CPU": ("--cpus=", "CPU numbers for --cpus"),
    "CPUs by word": ("--cpus all", "CPU numbers for --cpus"),
    "half a range": ("--cpus 0-", "CPU numbers for --cpus"),
    "range backwards": ("--cpus 3-1", "CPU numbers for --cpus"),
    "memory by word": ("--memory lots", "'lots' is not a size"),
    "negative memory": ("--memory=-1", "'-1' is not a size"),
    "little memory": ("--memory 6m", "256.0 MiB or more"),
    "endless memory": (f"--memory {NINES}t", "too large"),
    "shared memory by word": ("--shm-size lots", "'lots' is not a size"),
    "no shared memory": ("--shm-size 0", "found '0'"),
    "network": ("--network host", "--network none or bridge"),
    "missing mount": ("--mount gone", "no such file or folder"),
    "empty mount": ("--mount :/x", "--mount SRC"),
    "relative mount": ("--mount empty:x", "an absolute DST"),
    "strange mount": ("--mount empty:/x:rx", "--mount SRC"),
    "mount over the system": ("--mount empty:/usr", "hides nothing of the image"),
    "mount over the system by a detour": ("--mount empty:/x/../usr", "hides nothing of the image"),
    "two mounts at one place": ("--mount empty:/x --mount thesis:/x", "each --mount at a place of its own"),
    "image": ("--image A;B", "an image name for --image"),
    "base image": ("--base-image=-x", "an image name for --base-image"),
    "version of torch": ("--torch newest", "a version for --torch"),
}


@pytest.mark.parametrize("case", ONLY_SANDBOX)
def test_an_option_of_sandbox_is_refused(case, folder, phantora):
    text, says = ONLY_SANDBOX[case]
    before = listing(folder)
    assert_refused(phantora("sandbox", "train.py", *text.split(" ")), USAGE, says)
    assert listing(folder) == before


# ---- profiles -------------------------------------------------------------------------------------------------------


def changed(kind: str, key: str, value: str) -> str:
    """A built-in profile with another value; `key` may be a section, `value` empty: the line goes."""
    path = next(iter(sorted((PROFILES / f"{kind}s").glob("*.toml"))))
    line = f"{key} = {value}\n" if value else ""
    text, count = re.subn(rf"^{re.escape(key)} *=.*\n", lambda _: line, path.read_text(), count=1, flags=re.M)
    assert count == 1, key
    return text


CLUSTER = (PROFILES / "clusters" / "dgx-h100.toml").read_text()
CLUSTER_FILES = {
    "YAML": ("nodes: [1, 2]\n", "valid TOML"),
    "JSON": ('{"cluster": {}}\n', "valid TOML"),
    "half a file": (CLUSTER[: CLUSTER.rindex('"')], "valid TOML"),
    "not text": (b"\xff\xfe\x00", "valid TOML"),
    "deep": ("a = " + "[" * 100_000, "valid TOML"),
    "empty": ("", "schema is None"),
    "no section": ('schema = 1\nkind = "cluster"\n', "no section [cluster]"),
    "empty section": ('schema = 1\nkind = "cluster"\n[cluster]\n', "is missing"),
    "another schema": (changed("cluster", "schema", "2"), "schema is 2"),
    "another kind": (changed("cluster", "kind", '"gpu"'), "kind is 'gpu'"),
    "kind of another type": (changed("cluster", "kind", '["cluster"]'), "kind is ['cluster']"),
    "section of another type": ('schema = 1\nkind = "cluster"\ncluster = 3\n', "no section [cluster]"),
    "unknown section": (CLUSTER + "[mystery]\nx = 1\n", "'mystery' is no known key"),
    "unknown key": (CLUSTER + "nvlink_bites_per_s = 1\n", "is nvlink_bytes_per_s meant?"),
    "unknown source": (CLUSTER + 'x_source = "y"\n', "'x_source' is no known key"),
    "missing number": (changed("cluster", "nvlink_bytes_per_s", ""), "nvlink_bytes_per_s"),
    "negative number": (changed("cluster", "nvlink_bytes_per_s", "-1"), "-1, not above 0"),
    "zero": (changed("cluster", "nvlink_bytes_per_s", "0"), "0, not above 0"),
    "not a number": (changed("cluster", "nvlink_bytes_per_s", "nan"), "not a finite number"),
    "infinite": (changed("cluster", "nvlink_bytes_per_s", "inf"), "not a finite number"),
    "huge": (changed("cluster", "nvlink_bytes_per_s", NINES), "or less"),
    "text for a number": (changed("cluster", "nvlink_bytes_per_s", '"fast"'), "'fast', not a number"),
    "list for a number": (changed("cluster", "nvlink_bytes_per_s", "[1]"), "[1], not a number"),
    "truth for a number": (changed("cluster", "nvlink_bytes_per_s", "true"), "True, not a number"),
    "date for a number": (changed("cluster", "nvlink_bytes_per_s", "2026-01-01"), "not a number"),
    "half a GPU": (changed("cluster", "gpus_per_node", "8.5"), "not a whole number"),
    "more than all": (changed("cluster", "nvlink_efficiency", "80"), "not a share of 1"),
    "huge nodes": (changed("cluster", "gpus_per_node", "256"), "1 to 255 GPUs per node"),
    "number for a name": (changed("cluster", "gpu", "7"), "7, not text"),
    "two lines for a name": (changed("cluster", "gpu", '"a\\nworld_size = 1"'), "not text of one line"),
    "unknown GPU": (changed("cluster", "gpu", '"b9000"'), "a gpu profile 'b9000'"),
    "number for a source": (changed("cluster", "gpu_source", "7"), "7, not text"),
    "date for a summary": (changed("cluster", "summary", "2026-01-01"), "not text"),
    "tables": (CLUSTER + '[tables]\ngemm = "x"\n', "'tables' is no known key"),
}


@pytest.mark.parametrize("case", CLUSTER_FILES)
def test_a_cluster_file_is_refused(case, folder, phantora):
    content, says = CLUSTER_FILES[case]
    (folder / "mine.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    before = listing(folder)
    answer = phantora("run", "train.py", "--gpus", "512", "--cluster", "mine.toml")
    assert_refused(answer, USAGE, says)
    assert listing(folder) == before


OTHER_FILES = {
    "negative memory": ("gpu", "total_bytes", "-1", "total_bytes is -1"),
    "no memory": ("gpu", "total_bytes", "0", "total_bytes is 0"),
    "half a byte": ("gpu", "total_bytes", "0.5", "not a whole number"),
    "missing peak": ("gpu", "peak_flops_bf16", "", "peak_flops_bf16"),
    "missing table": ("gpu", "gemm", '"gone.txt"', "table gemm is 'gone.txt'"),
    "table by number": ("gpu", "gemm", "7", "table gemm is 7"),
    "negative time": ("host", "launch", "-1", "launch is -1"),
    "call that is free of cost": ("host", "launch", "0", "launch is 0"),
    "too long a call": ("host", "comminit", str(1 << 61), "comminit is"),
    "half a CPU": ("host", "cpu_count", "0.5", "not a whole number"),
}


@pytest.mark.parametrize("case", OTHER_FILES)
def test_gpu_and_host_files_are_refused(case, folder, phantora):
    kind, key, value, says = OTHER_FILES[case]
    (folder / "mine.toml").write_text(changed(kind, key, value))
    before = listing(folder)
    assert_refused(phantora("run", "train.py", f"--{kind}", "mine.toml"), USAGE, says)
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "expected `phantora-table 1 gemm`"), ("phantora-table 1 gemm\ngrid bf16\nm 1\n", "needs two or more values")],
)
def test_a_table_is_refused(content, says, folder):
    """Only the simulator reads tables: by then there is a run directory, which goes again."""
    (folder / "mine.toml").write_text(changed("gpu", "gemm", '"mine.txt"'))
    (folder / "mine.txt").write_text(content)
    before = listing(folder)
    assert_refused(in_a_process(folder, "run", "train.py", "--gpus", "1", "--gpu", "./mine.toml"), USAGE, says)
    assert listing(folder) == before


def test_what_is_wrong_with_a_profile_is_listed(folder, phantora):
    (folder / "mine.toml").write_text(changed("cluster", "nics_per_node", "-8") + "x = 1\n")
    answer = phantora("profiles", "check", "mine.toml")
    assert (answer.code, answer.err) == (USAGE, "")
    assert "nics_per_node is -8, not above 0." in answer.out
    assert "'x' is no known key." in answer.out


# ---- other verbs ----------------------------------------------------------------------------------------------------

REPORT = '{"schema": 1, "verdict": "ok", "message": "well", "world_size": 8}'
DAMAGED = {
    "no report": (None, None, "", "the report of"),
    "empty report": ("report.json", b"", "", "damaged"),
    "half a report": ("report.json", b'{"schema": 1, "verd', "--json", "damaged"),
    "not text": ("report.json", b"\xff\xfe", "--json", "damaged"),
    "a list": ("report.json", b"[]", "--json", "no schema 1"),
    "another schema": ("report.json", b'{"schema": 2}', "--json", "no schema 1"),
    "keys missing": ("report.json", REPORT.encode(), "", "keys missing"),
    "keys of another type": ("report.json", REPORT.replace("8", "[]").encode(), "--md", "keys missing"),
    "no op log": (None, None, "--oplog", "the op log of"),
    "op log of text": ("oplog", b"hello", "--oplog", "damaged"),
    "half an op log": ("oplog", gzip.compress(os.urandom(99))[:60], "--oplog", "damaged"),
    "torn op log": ("oplog", gzip.compress(bytes(9999))[:20] + b"xxxx" * 9, "--oplog", "damaged"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_report_of_a_damaged_run(case, folder, phantora):
    name, content, option, says = DAMAGED[case]
    if name is not None:
        (folder / "earlier" / name).write_bytes(content)
    assert_refused(phantora("report", "earlier", *filter(None, [option])), ENVIRONMENT, says)


@pytest.mark.parametrize("name", ["report.json", "oplog"])
def test_report_of_folders_where_files_were(name, folder, phantora):
    (folder / "earlier" / name).mkdir()
    option = ["--oplog"] if name == "oplog" else []
    assert_refused(phantora("report", "earlier", *option), ENVIRONMENT, "Is a directory")


@pytest.mark.parametrize("events", [None, b"\xff\x00nonsense\n[]\n7\n{}\n", b'{"t": "ranks", "ranks": 7}\n'])
def test_the_live_view_of_a_damaged_run_reads_on(events, folder):
    if events is None:
        (folder / "earlier" / "events.jsonl").mkdir()
    else:
        (folder / "earlier" / "events.jsonl").write_bytes(events)
    stream = EventStream(folder / "earlier")
    assert stream.lines(0.0) == (events or b"").split(b"\n")[:-1]
    stream.close()


OTHER_VERBS = {
    "no such verb": ("rnu", "Did you mean 'run'?"),
    "no such option": ("--nosuch", "--nosuch"),
    "report of nothing": ("report", "missing argument 'RUN'"),
    "report of a file": ("report train.py", "no run.json there"),
    "report of another folder": ("report thesis", "no run.json there"),
    "report of two": ("report a b", "unexpected extra argument"),
    "report in two forms": ("report earlier --json --md", "one of --json"),
    "top of nothing": ("top", "missing argument 'RUN'"),
    "top of another folder": ("top thesis", "no run.json there"),
    "top without a terminal": ("top earlier", "a terminal"),
    "unknown profile": ("profiles show b9000", "a profile 'b9000'"),
    "missing profile": ("profiles check gone.toml", "no such file"),
    "version of torch": ("image build --torch newest", "a version for --torch"),
    "base image": ("image build --base-image A;B", "an image name"),
    "no such verb of image": ("image paint", "'paint'"),
}


@pytest.mark.parametrize("case", OTHER_VERBS)
def test_other_verbs_are_refused(case, folder, phantora):
    text, says = OTHER_VERBS[case]
    before = listing(folder)
    assert_refused(phantora(*text.split()), USAGE, says)
    assert listing(folder) == before


# ---- this machine ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [NOWHERE, "unix:///gone.sock", "gopher://x"])
@pytest.mark.parametrize("verb", ["sandbox train.py", "image build", "image list", "image prune"])
def test_no_engine(verb, address, folder, phantora, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", address)
    before = listing(folder)
    answer = phantora(*verb.split())
    assert_refused(answer, ENVIRONMENT, "Wanted a Docker Engine; found none that answers")
    assert "phantora run" in answer.err
    assert listing(folder) == before


def test_an_engine_that_is_not_open_to_this_user(folder):
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(folder / "docker.sock"))
        engine.listen()
        (folder / "docker.sock").chmod(0)
        before = listing(folder)
        address = f"unix://{folder}/docker.sock"
        answer = in_a_process(folder, "sandbox", "train.py", prepare=without_privileges, DOCKER_HOST=address)
    assert_refused(answer, ENVIRONMENT, "its socket is not open to this user")
    assert "usermod -aG docker" in answer.err and "phantora run train.py" in answer.err
    assert listing(folder) == before


@pytest.mark.parametrize("name", ["train.py", "mine.toml"])
def test_a_file_that_may_not_be_read(name, folder):
    (folder / "mine.toml").write_text(CLUSTER)
    (folder / name).chmod(0)
    before = listing(folder)
    answer = in_a_process(folder, "run", "train.py", "--cluster", "mine.toml", prepare=without_privileges)
    assert_refused(answer, USAGE, "permissions")
    assert listing(folder) == before


@pytest.mark.parametrize("options", [[], ["--out", "runs/x"]])
def test_a_place_that_may_not_be_written(options, folder):
    folder.chmod(0o555)
    before = listing(folder)
    answer = in_a_process(folder, "run", "train.py", *options, prepare=without_privileges)
    folder.chmod(0o755)
    assert_refused(answer, ENVIRONMENT, "may not be written")
    assert listing(folder) == before


def test_output_to_a_full_disk():
    with open("/dev/full", "w") as full:
        line = [sys.executable, "-m", "phantora", "profiles", "list"]
        answer = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
    assert_refused(
        Answer(shlex.join(line), answer.returncode, "", answer.stderr), ENVIRONMENT, "No space left on device"
    )


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system in memory of that many bytes."""
    mounted = []

    def mount(size: int) -> Path:
        place = tmp_path / "disk"
        place.mkdir()
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], capture_output=True
        ).returncode:
            if os.environ.get("CI"):
                pytest.fail("CI needs the right to mount")
            pytest.skip("no right to mount")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", place], check=True)


def test_a_disk_that_is_full_at_the_start(small_disk, folder):
    disk = small_disk(4096)
    answer = in_a_process(folder, "run", "train.py", "--gpus", "1", "--out", str(disk / "run"))
    assert_refused(answer, ENVIRONMENT, "No space left on device")
    assert list(disk.iterdir()) == []


def test_a_disk_that_is_full_when_the_run_begins(small_disk, folder):
    disk = small_disk(24 << 10)
    answer = in_a_process(folder, "run", "train.py", "--gpus", "1", "--out", str(disk / "run"))
    assert_refused(answer, ENVIRONMENT, "No space left on device")
    assert not list(disk.rglob("*.sock"))
