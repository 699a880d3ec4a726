"""Clocks travel with what threads and processes hand to each other. A dictionary of clocks stands in for the shim."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Each case has a fresh interpreter: the hooks change the standard library for good. Threads have a clock each.
PREAMBLE = """
import multiprocessing, queue, sys, threading
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, {runtime!r})
from phantora_runtime import bridge, handoff
clocks = threading.local()
def now(): return getattr(clocks, 'ns', 0)
def join(ns): clocks.ns = max(now(), ns)
bridge.timed = handoff.timed = lambda: True
bridge.stamp_ns = handoff.stamp_ns = now
bridge.join_ns = handoff.join_ns = join
handoff.install()
handoff.install()
join(100)
"""

CASES = {
    "queue": """
def work(q): join(5000); q.put('a'); join(9000); q.put('b')
q = queue.Queue(); thread = threading.Thread(target=work, args=(q,)); thread.start(); thread_end = now
first = q.get(), now()
second = q.get(), now()
assert (first, second) == (('a', 5000), ('b', 9000)), (first, second)
""",
    "priority queue": """
q = queue.PriorityQueue()
def work(): join(7000); q.put((2, 'late')); join(8000); q.put((1, 'first'))
thread = threading.Thread(target=work); threading.Thread.start(thread)
while q.qsize() < 2: pass
assert (q.get(), now()) == ((1, 'first'), 8000)
assert (q.get(), now()) == ((2, 'late'), 8000)
""",
    "simple queue": """
q = queue.SimpleQueue()
def work(): join(300); q.put(1)
threading.Thread(target=work).start()
assert (q.get(), now()) == (1, 300)
""",
    "a receiver that is ahead stays ahead": """
q = queue.Queue(); q.put(1); join(50_000)
assert (q.get(), now()) == (1, 50_000)
""",
    "thread start and join": """
seen = []
def work(): seen.append(now()); join(4000)
thread = threading.Thread(target=work); thread.start(); thread.join()
assert (seen, now()) == ([100], 4000)
""",
    "future": """
with ThreadPoolExecutor(1) as pool:
    def work(): join(6000); return 3
    assert (pool.submit(work).result(), now()) == (3, 6000)
""",
    "pipe": """
here, there = multiprocessing.Pipe()
def work(): join(2500); there.send({'x': 1}); there.send_bytes(b'raw')
threading.Thread(target=work).start()
assert (here.recv(), now()) == ({'x': 1}, 2500)
assert here.recv_bytes() == b'raw'
""",
    "message without a header": """
import os
here, there = multiprocessing.Pipe()
os.write(there.fileno(), b'\\x00\\x00\\x00\\x03abc')
assert (here.recv_bytes(), now()) == (b'abc', 100)
""",
    "process queue: the item's clock, not the feeder's": """
context = multiprocessing.get_context('fork')
q, gate = context.Queue(), context.Event()
def work(): join(1500); q.put('item'); join(90_000); gate.set()
process = context.Process(target=work); process.start(); gate.wait()
assert (q.get(), now()) == ('item', 1500), now()
process.join()
""",
}


@pytest.mark.parametrize("name", CASES)
def test_clocks_go_with(name):
    code = PREAMBLE.format(runtime=str(ROOT / "runtime")) + CASES[name]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
