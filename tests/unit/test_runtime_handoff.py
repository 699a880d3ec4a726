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
def advance(ns): clocks.ns = now() + ns
def now(): return getattr(clocks, 'ns', 0)
def join(ns): clocks.ns = max(now(), ns)
handoff.timed = lambda: True
bridge.stamp_ns, bridge.join_ns = now, join
bridge.mode = lambda: bridge.Mode.ACTOR
bridge.is_driving = lambda: threading.current_thread() is threading.main_thread()
handoff.install()
handoff.install()
join(100)
"""

CASES = {
    "queue": """
def work(q): advance(4900); q.put('a'); advance(4000); q.put('b')
q = queue.Queue(); thread = threading.Thread(target=work, args=(q,)); thread.start(); thread_end = now
first = q.get(), now()
second = q.get(), now()
assert (first, second) == (('a', 5000), ('b', 9000)), (first, second)
""",
    "priority queue": """
q = queue.PriorityQueue()
def work(): advance(6900); q.put((2, 'late')); advance(1000); q.put((1, 'first'))
thread = threading.Thread(target=work); threading.Thread.start(thread)
while q.qsize() < 2: pass
assert (q.get(), now()) == ((1, 'first'), 8000)
assert (q.get(), now()) == ((2, 'late'), 8000)
""",
    "simple queue": """
q = queue.SimpleQueue()
def work(): advance(200); q.put(1)
threading.Thread(target=work).start()
assert (q.get(), now()) == (1, 300)
""",
    "a receiver that is ahead stays ahead": """
q = queue.Queue(); q.put(1); join(50_000)
assert (q.get(), now()) == (1, 50_000)
""",
    "thread start and join": """
seen = []
def work(): seen.append(now()); advance(3900)
thread = threading.Thread(target=work); thread.start(); thread.join()
assert (seen, now()) == ([100], 4000)
""",
    "future": """
with ThreadPoolExecutor(1) as pool:
    def work(): advance(5900); return 3
    assert (pool.submit(work).result(), now()) == (3, 6000)
""",
    "pipe": """
here, there = multiprocessing.Pipe()
def work(): advance(2400); there.send({'x': 1}); there.send_bytes(b'raw')
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
    "a relay adds nothing, and late items do not delay early ones": """
source, target = queue.Queue(), queue.Queue()
def relay():
    while (item := source.get()) is not None: target.put(item)
def worker(clock, item): advance(clock - 100); source.put(item)
for clock, item in ((900, 'late'), (400, 'early')):
    thread = threading.Thread(target=worker, args=(clock, item)); thread.start()
    while source.qsize() != (1 if item == 'late' else 2): pass
threading.Thread(target=relay).start()
with handoff.holding() as held: items = [target.get(), target.get()]
assert (items, held, now()) == (['late', 'early'], [900, 400], 100), (items, held)
source.put(None)
""",
    "a helper that works does one item after the other": """
source, target = queue.Queue(), queue.Queue()
def relay():
    while (item := source.get()) is not None: advance(50); target.put(item)
source.put(1); source.put(2); threading.Thread(target=relay).start()
with handoff.holding() as held: target.get(), target.get()
assert held == [150, 200], held
source.put(None)
""",
    "process queue: the item's clock, not the feeder's": """
context = multiprocessing.get_context('fork')
q, gate = context.Queue(), context.Event()
def work(): advance(1400); q.put('item'); advance(90_000); gate.set()
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
