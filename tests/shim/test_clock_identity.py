"""What a rank learns of its machine comes from the run's seed and profiles, not from this machine (rule 8)."""

from __future__ import annotations

import subprocess

from clock_support import clock_library, run_on  # noqa: F401

ENTROPY = """
import secrets, uuid
def draw():
    with open("/dev/urandom", "rb") as device: opened = device.read(8).hex()
    return [os.urandom(8).hex(), str(uuid.uuid4()), secrets.token_hex(4), opened]
values = {"main": draw()}
def thread(): values["thread"] = draw()
worker = threading.Thread(target=thread); worker.start(); worker.join()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, json.dumps(draw()).encode()); os._exit(0)
values["fork"] = json.loads(os.read(reader, 1000))
import subprocess
command = [sys.executable, "-c", "import os; print(os.urandom(8).hex())"]
values["exec"] = [subprocess.run(command, capture_output=True, text=True).stdout for _ in range(2)]
result(**values)
"""


def _flat(values: dict) -> list[str]:
    return [text for group in values.values() for text in group]


def test_entropy_depends_on_seed_and_rank_alone(run_on) -> None:  # noqa: F811
    first = run_on(1, seed=1).one(ENTROPY)
    again = run_on(1, seed=1).one(ENTROPY)
    other = run_on(1, seed=2).one(ENTROPY)
    assert first == again
    assert len(set(_flat(first))) == len(_flat(first))  # no stream repeats another
    assert not set(_flat(first)) & set(_flat(other))


def test_ranks_draw_differently(run_on) -> None:  # noqa: F811
    run = run_on(2)
    program = "result(draw=os.urandom(16).hex())"
    one, two = run.finish(run.start(0, program), run.start(1, program))
    assert one != two


def test_node_name_cpus_and_addresses(run_on) -> None:  # noqa: F811
    run = run_on(4, per_node=2, cpus=3)
    program = """
    import socket
    info = socket.getaddrinfo("node-0", 80, type=socket.SOCK_STREAM)[0][4][0]
    result(host=socket.gethostname(), node=os.uname().nodename, cpus=os.cpu_count(), info=info,
           affinity=len(os.sched_getaffinity(0)), address=socket.gethostbyname("node-1"),
           own=socket.gethostbyname(socket.gethostname()))
    """
    got = run.finish(*(run.start(rank, program) for rank in range(4)))
    assert [values["host"] for values in got] == ["node-0", "node-0", "node-1", "node-1"]
    for values in got:
        assert values["node"] == values["host"]
        assert (values["cpus"], values["affinity"]) == (3, 3)
        assert values["address"] == values["info"] == values["own"] == "127.0.0.1"


def test_random_device_of_cpp_is_seeded(run_on, tmp_path) -> None:  # noqa: F811
    source, library = tmp_path / "random.cpp", tmp_path / "random.so"
    source.write_text('#include <random>\nextern "C" unsigned draw() { std::random_device device; return device(); }\n')
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", library], check=True)
    program = (
        f"lib = ctypes.CDLL({str(library)!r}); lib.draw.restype = ctypes.c_uint; result(d=[lib.draw(), lib.draw()])"
    )
    first, again, other = (run_on(1, seed=seed).one(program) for seed in (1, 1, 2))
    assert first == again != other
    assert first["d"][0] != first["d"][1]
