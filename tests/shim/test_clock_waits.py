"""Sleeps, time-outs and blocking calls of driving and helper threads (rules 9 to 12)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from clock_support import EPOCH_NS, c_program, clock_library, run_on  # noqa: F401


def test_sleep_takes_virtual_time_only(run_on) -> None:  # noqa: F811
    started = time.monotonic()
    got = run_on().one(
        """
        time.sleep(1000); first = now()
        import select; select.select([], [], [], 0.25); second = now()
        threading.Event().wait(0.5)
        result(first=first, second=second, third=now(), clock=time.time_ns())
        """
    )
    assert got["first"] == 1_000_000_000_000
    assert got["second"] == 1_000_250_000_000
    assert got["third"] == 1_000_750_000_000
    assert got["clock"] == EPOCH_NS + got["third"]
    assert time.monotonic() - started < 20


def test_two_sleepers_wake_in_the_order_of_their_clocks(run_on) -> None:  # noqa: F811
    """Each appends to one file after each sleep: the file's order is that of virtual time, whoever starts first."""
    program = """
    for step in range({steps}):
        time.sleep({gap})
        with open({path!r}, "a") as log: log.write(f"{{now()}} {rank}\\n")
    result(h=now())
    """
    run = run_on(2)
    path = str(run.folder / "log")
    slow = run.start(1, program.format(steps=4, gap=0.010, rank=1, path=path))
    time.sleep(0.3)
    fast = run.start(0, program.format(steps=9, gap=0.004, rank=0, path=path))
    got = run.finish(fast, slow)
    assert [values["h"] for values in got] == [36_000_000, 40_000_000]
    times = [int(line.split()[0]) for line in Path(path).read_text().splitlines()]
    assert times == sorted(times)
    assert len(times) == 13


def test_a_sleep_waits_for_ranks_that_run(run_on) -> None:  # noqa: F811
    """Rank 1 computes for real; rank 0's sleep may not end before rank 1 has passed it."""
    run = run_on(2)
    path = str(run.folder / "flag")
    sleeper = run.start(0, f"time.sleep(0.5); result(seen=os.path.exists({path!r}))")
    worker = run.start(
        1,
        f"""
    import hashlib
    for _ in range(300_000): hashlib.sha256(b'x').digest()
    open({path!r}, 'w').close()
    shim.phantora_advance_ns(10**9)
    result(h=now())
    """,
    )
    got = run.finish(sleeper, worker)
    assert got[0]["seen"] is True


def test_helper_threads_see_global_time_and_time_out_in_it(run_on) -> None:  # noqa: F811
    got = run_on().one(
        """
        event, seen = threading.Event(), {}
        def watch():
            seen["drives"] = shim.phantora_is_driving()
            seen["set"] = event.wait(300)      # a watchdog: five minutes
            seen["at"] = time.time_ns()
        thread = threading.Thread(target=watch); thread.start()
        time.sleep(299); early = "at" in seen
        time.sleep(2)
        thread.join()
        result(early=early, h=now(), **seen)
        """
    )
    assert got["drives"] == 0
    assert got["early"] is False
    assert got["set"] is False
    assert got["at"] >= EPOCH_NS + 300_000_000_000
    assert got["h"] == 301_000_000_000


def test_a_helper_that_sleeps_carries_its_clock_to_who_joins_it(run_on) -> None:  # noqa: F811
    """Loading 0.64 s in a thread costs the rank 0.64 s."""
    got = run_on().one(
        """
        stamps = []
        def load(): time.sleep(0.64); stamps.append(shim.phantora_stamp_ns())
        shim.phantora_advance_ns(1000)
        thread = threading.Thread(target=load); thread.start(); thread.join()
        shim.phantora_join_ns(stamps[0])
        result(h=now(), stamp=stamps[0])
        """
    )
    assert got == {"h": 640_001_000, "stamp": 640_001_000}


def test_a_lock_released_by_a_helper_frees_the_main_thread(run_on) -> None:  # noqa: F811
    got = run_on().one(
        """
        event = threading.Event()
        def later(): os.read(pipe[0], 1); event.set()
        pipe = os.pipe()
        threading.Thread(target=later).start()
        os.write(pipe[1], b"x")
        result(first=event.wait(60), h=now())
        """
    )
    assert got["first"] is True
    assert got["h"] < 60_000_000_000


@pytest.mark.parametrize("call", ["poll", "select", "epoll"])
def test_polls_time_out_in_virtual_time_and_see_data(run_on, call: str) -> None:  # noqa: F811
    got = run_on().one(
        f"""
        import select
        reader, writer = os.pipe()
        def look(seconds):
            if {call!r} == "select": return len(select.select([reader], [], [], seconds)[0])
            if {call!r} == "poll":
                poll = select.poll(); poll.register(reader, select.POLLIN); return len(poll.poll(seconds * 1000))
            poll = select.epoll(); poll.register(reader, select.EPOLLIN); return len(poll.poll(seconds))
        empty = look(90); after = now()
        os.write(writer, b"x")
        result(empty=empty, after=after, full=look(90), h=now())
        """
    )
    assert got == {"empty": 0, "after": 90_000_000_000, "full": 1, "h": 90_000_000_000}


def test_condition_variables_and_futures_of_cpp(run_on, tmp_path) -> None:  # noqa: F811
    """wait_for with nobody notifying ends after exactly its time; with a notifier it does not move the clock."""
    library = tmp_path / "waits.so"
    source = r"""
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
using namespace std::chrono_literals;
extern "C" int silent() {
  std::mutex m; std::condition_variable c; std::unique_lock<std::mutex> l(m);
  return c.wait_for(l, 30s) == std::cv_status::timeout;
}
extern "C" int notified() {
  std::mutex m; std::condition_variable c; bool set = false; std::unique_lock<std::mutex> l(m);
  std::thread t([&] { std::lock_guard<std::mutex> g(m); set = true; c.notify_all(); });
  const bool ok = c.wait_for(l, 30s, [&] { return set; });
  l.unlock(); t.join(); return ok;
}
extern "C" int promise() { std::promise<int> p; return p.get_future().wait_for(7s) == std::future_status::timeout; }
extern "C" int helper() {  // a watchdog in a thread: waits on a deadline of its own while the caller sleeps past it
  int fired = 0;
  std::thread t([&] { std::mutex m; std::condition_variable c; std::unique_lock<std::mutex> l(m);
                      fired = c.wait_for(l, 5s) == std::cv_status::timeout; });
  std::this_thread::sleep_for(6s); t.join(); return fired;
}
"""
    c_program(tmp_path, "unused", "int main() {}")
    (tmp_path / "waits.cpp").write_text(source)
    import subprocess

    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", tmp_path / "waits.cpp", "-o", library], check=True
    )
    got = run_on().one(
        f"""
        lib = ctypes.CDLL({str(library)!r})
        a = lib.silent(); ta = now()
        b = lib.notified(); tb = now()
        c = lib.promise(); tc = now()
        d = lib.helper(); td = now()
        result(a=a, ta=ta, b=b, tb=tb, c=c, tc=tc, d=d, td=td)
        """
    )
    seconds = 1_000_000_000
    assert got == {
        "a": 1,
        "ta": 30 * seconds,
        "b": 1,
        "tb": 30 * seconds,
        "c": 1,
        "tc": 37 * seconds,
        "d": 1,
        "td": 43 * seconds,
    }


def test_a_busy_helper_that_holds_the_gil_moves_no_clock(run_on) -> None:  # noqa: F811
    """Waiting for the interpreter is real time."""
    got = run_on().one(
        """
        stop = []
        def spin():
            while not stop: pass
        thread = threading.Thread(target=spin); thread.start()
        for _ in range(30): sum(range(100_000))
        stop.append(1); thread.join()
        result(h=now())
        """
    )
    assert got == {"h": 0}


def test_time_outs_work_after_a_script_closed_all_descriptors(run_on) -> None:  # noqa: F811
    got = run_on().one(
        """
        import select
        reader, writer = os.pipe()
        select.select([reader], [], [], 0.5)
        os.closerange(3, 5000)
        reader, writer = os.pipe()
        select.select([reader], [], [], 1.0)
        result(h=now())
        """
    )
    assert got["h"] == 1_500_000_000
