"""Zygote, ranks and supervisor without torch, shim or core: PHANTORA_NULL=1 and a harmless library as the shim."""

import ctypes.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory):
    """An interpreter without torch."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


@pytest.fixture
def phantora(tmp_path, monkeypatch, bare_python):
    """Starts `phantora run ARGS` in an empty folder; scripts are written there by the test."""
    native = tmp_path / "native"
    (native / "stubs").mkdir(parents=True)
    library = next(Path("/").glob(f"lib*/**/{ctypes.util.find_library('m')}"), None)
    if library is None:
        pytest.skip("no libm to stand in for the shim")
    (native / "libphantora_shim.so").symlink_to(library)
    (native / "phantora-core").symlink_to("/bin/true")
    monkeypatch.chdir(tmp_path)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "runtime")]),
        "PHANTORA_NATIVE": str(native),
        "PHANTORA_NULL": "1",
        "PHANTORA_ALLOW_NO_TORCH": "1",
    }

    def start(*arguments, **more):
        command = [sys.executable, "-m", "phantora", "run", "--python", str(bare_python), "--name", "r", *arguments]
        variables = {name: value for name, value in (environment | more).items() if value is not None}
        return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(*arguments, **more):
        process = start(*arguments, **more)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    run.start = start
    return run


def log(rank):
    return Path(f"runs/r/ranks/{rank:05d}.log").read_text()


def write(text, name="train.py"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def test_ranks_see_what_torchrun_gives(phantora):
    write(
        "import os\n"
        "names = 'RANK LOCAL_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_PORT'.split()\n"
        "print(*(os.environ[name] for name in names), os.environ['EXTRA'], end='')\n"
    )
    code, out, _ = phantora("train.py", "--gpus", "4", "--gpus-per-node", "2", "--env", "EXTRA=1")
    assert code == 0
    assert out == log(0)
    rows = [log(rank).split() for rank in range(4)]
    assert [row[:5] for row in rows] == [
        ["0", "0", "0", "4", "2"], ["1", "1", "0", "4", "2"], ["2", "0", "1", "4", "2"], ["3", "1", "1", "4", "2"],
    ]  # fmt: skip
    assert len({row[5] for row in rows}) == 1


def test_the_script_runs_as_python_would_run_it(phantora):
    write(
        "import sys, os, pickle, __main__\n"
        "import helper\n"
        "class Thing: pass\n"
        "print(sys.argv, __name__, os.path.basename(__file__), __spec__, sys.path[0] == os.path.dirname(__file__))\n"
        "print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, __main__.Thing is Thing, helper.VALUE,"
        " sys.stdin.read())\n",
        "sub/train.py",
    )
    write("VALUE = 5\n", "sub/helper.py")
    code, out, err = phantora("sub/train.py", "--gpus", "1", "--", "--lr", "1")
    assert code == 0, err
    assert out == "['sub/train.py', '--lr', '1'] __main__ train.py None True\nTrue True 5 \n"


def test_modules(phantora):
    write("import sys\nprint(sys.argv[1:], __name__, __package__, __spec__.name)\n", "pack/go.py")
    write("", "pack/__init__.py")
    code, out, err = phantora("-m", "pack.go", "--gpus", "1", "--", "x")
    assert code == 0, err
    assert out == "['x'] __main__ pack pack.go\n"


def test_files_left_open_are_flushed_and_exit_handlers_run(phantora):
    write("import atexit\nfile = open('out.txt', 'w')\nfile.write('kept')\natexit.register(print, 'bye')\n")
    code, out, _ = phantora("train.py", "--gpus", "1")
    assert (code, out, Path("out.txt").read_text()) == (0, "bye\n", "kept")


def test_the_first_failing_rank_comes_first_and_ends_the_run(phantora):
    write("import os, time\nif os.environ['RANK'] == '2':\n    raise ValueError('no good')\ntime.sleep(60)\n")
    started = time.monotonic()
    code, _, err = phantora("train.py", "--gpus", "4")
    assert code == 1
    assert time.monotonic() - started < 30
    lines = err.splitlines()
    assert lines[0] == "phantora: rank 2 failed (ValueError: no good):"
    assert lines[1] == "Traceback (most recent call last):"
    assert "phantora_runtime" not in err
    report = json.loads(Path("runs/r/report.json").read_text())
    assert report["verdict"] == "failed" and "ranks/00002.log" in report["message"]
    assert "ValueError: no good" in log(2)


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("sys.exit(7)", "exit status 7"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("os._exit(3)", "exit status 3"),
        ("sys.exit('words')", "exit status 1"),
        ("sys.exit(2**70)", "exit status 255"),
        ("raise Mute", "Mute"),
    ],
)
def test_how_ranks_can_end(phantora, line, how):
    mute = "class Mute(Exception):\n    def __str__(self):\n        return last_words_are_missing\n"
    script = f"import os, sys\n{mute}if os.environ['RANK'] == '1':\n    print('last words', flush=True)\n    {line}\n"
    write(script)
    code, _, err = phantora("train.py", "--gpus", "2")
    assert code == 1
    assert f"rank 1 failed ({how})" in err
    assert "last words" in (log(1) if how == "Mute" else err)
    assert "phantora_runtime" not in err


def test_a_script_that_does_not_parse_is_shown_without_our_frames(phantora):
    write("def broken(:\n    pass\n")
    code, _, err = phantora("train.py", "--gpus", "1")
    assert code == 1
    assert "SyntaxError: invalid syntax" in err and "phantora_runtime" not in err


def test_a_fork_that_goes_on_in_the_script_ends_alone(phantora):
    write(
        "import os\n"
        "first = os.fork()\n"
        "if first == 0: raise ValueError('of the child alone')\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) == 1\n"
        "second = os.fork()\n"
        "os.write(1, b'end of child\\n' if second == 0 else b'end of rank\\n')\n"  # whole lines, however they meet
        "if second: assert os.waitpid(second, 0)[1] == 0\n"
    )
    code, out, _ = phantora("train.py", "--gpus", "2", "--timeout", "30s")
    assert code == 0
    assert sorted(out.splitlines()) == ["end of child", "end of rank"]
    assert json.loads(Path("runs/r/report.json").read_text())["verdict"] == "ok"


def test_what_a_script_writes_to_the_control_socket_is_no_message(phantora):
    write(
        "import os\n"
        "fd = int(os.environ['PHANTORA_CONTROL_FD'])\n"
        "for junk in (b'junk', b'[]', b'{}', b'\\xff', b'[' * 50000, b'{\"event\": \"exited\"}',"
        ' b\'{"event": "exited", "rank": "a", "status": 1}\'): os.write(fd, junk)\n'
    )
    code, _, err = phantora("train.py", "--gpus", "1")
    assert code == 0, err


def test_long_messages_arrive(phantora):
    """A packet holds about 200 KB, and a character may take six bytes of it."""
    write("raise ValueError('\\udcff' * 100_000)")
    code, _, err = phantora("train.py", "--gpus", "1")
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("phantora: failed: Rank 0 failed (ValueError: \\udcff") and len(last) < 3000


def test_a_killed_supervisor_leaves_nothing_behind(phantora):
    write(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], start_new_session=True)\n"
        "supervisor = next(line.split()[1] for line in open(f'/proc/{os.getppid()}/status') if 'PPid' in line)\n"
        "open('pids.part', 'w').write(f'{supervisor} {os.getpid()} {child.pid}')\n"
        "os.rename('pids.part', 'pids')\n"
        "time.sleep(100)\n"
    )
    process = phantora.start("train.py", "--gpus", "1")
    deadline = time.monotonic() + 60
    while not Path("pids").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pids = Path("pids").read_text().split()
    os.kill(int(pids[0]), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "found it killed by SIGKILL" in err
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_timeout_says_where_every_rank_was(phantora):
    write("import time\ndef stuck_here():\n    time.sleep(100)\nstuck_here()\n")
    code, _, err = phantora("train.py", "--gpus", "2", "--timeout", "2s")
    assert code == 124
    assert "stopped: The run took longer than --timeout 2 s" in err
    assert all("in stuck_here" in log(rank) for rank in range(2))
    assert json.loads(Path("runs/r/report.json").read_text())["verdict"] == "stopped"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(phantora, tmp_path, number):
    write(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], start_new_session=True)\n"
        "open(f'pids.{os.environ[\"RANK\"]}', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "time.sleep(100)\n"
    )
    process = phantora.start("train.py", "--gpus", "2")
    deadline = time.monotonic() + 30
    while not all(path.exists() and path.read_text() for path in (Path("pids.0"), Path("pids.1"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped: The run was interrupted." in err
    for rank in range(2):
        for pid in Path(f"pids.{rank}").read_text().split():
            assert not Path(f"/proc/{pid}").exists()


def test_json_keeps_stdout_for_the_report(phantora):
    write("print('from the script')\n")
    code, out, err = phantora("train.py", "--gpus", "1", "--json")
    assert code == 0
    assert json.loads(out)["schema"] == 1
    assert "from the script" in err


def test_shuffled_start_order_gives_the_same_ranks(phantora):
    write("import os\nprint(os.environ['RANK'], end='')\n")
    code, _, _ = phantora("train.py", "--gpus", "8", PHANTORA_START_ORDER="shuffle:3")
    assert code == 0
    assert [log(rank) for rank in range(8)] == [str(rank) for rank in range(8)]


def test_missing_torch_is_an_environment_fault(phantora):
    write("print('never')")
    code, out, err = phantora("train.py", "--gpus", "1", PHANTORA_ALLOW_NO_TORCH=None)
    assert (code, out) == (3, "")
    assert err.startswith("phantora: Wanted torch; found none in ") and len(err.splitlines()) == 1
