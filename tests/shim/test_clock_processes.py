"""Children of a rank: detached at once, with a clock of their own that comes back (rules 12 and 13)."""

from __future__ import annotations

from clock_support import clock_library, run_of, run_on  # noqa: F401


def test_a_forked_child_leaves_the_ring_and_its_clock_is_joined(run_on) -> None:  # noqa: F811
    run = run_on()
    got = run.one(
        """
        shim.phantora_advance_ns(5_000)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            time.sleep(0.25)
            shim.phantora_mark(4, 0, b"never")
            os.write(writer, f"{shim.phantora_mode()} {now()}".encode())
            os._exit(3)
        mode, child = map(int, os.read(reader, 100).split())
        before = now()
        status = os.waitpid(pid, 0)[1]
        result(mode=mode, child=child, before=before, after=now(), status=os.waitstatus_to_exitcode(status))
        """
    )
    assert got == {"mode": 2, "child": 250_005_000, "before": 5_000, "after": 250_005_000, "status": 3}
    if run.core.actors:
        assert [record.kind for record in run.core.actors[0].records] == [15]  # the rank's own exit and nothing else


def test_further_threads_of_a_child_have_clocks_of_their_own(run_on) -> None:  # noqa: F811
    """A DataLoader worker's thread that sends a batch works while the next batch is made: in which order is real time's
    matter."""
    got = run_on().one(
        """
        shim.phantora_advance_ns(5_000)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            seen = []
            def work():
                shim.phantora_advance_ns(300)
                time.sleep(0.001)
                seen.append(shim.phantora_stamp_ns())
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            shim.phantora_advance_ns(70)
            os.write(writer, f"{seen[0]} {shim.phantora_stamp_ns()}".encode())
            os._exit(0)
        thread, process = map(int, os.read(reader, 100).split())
        os.waitpid(pid, 0)
        result(thread=thread, process=process, h=now())
        """
    )
    assert got == {"thread": 5_000 + 300 + 1_000_000, "process": 5_070, "h": 5_070}


def test_an_executed_child_starts_with_its_parents_clock(run_on) -> None:  # noqa: F811
    got = run_on().one(
        """
        import subprocess
        shim.phantora_advance_ns(7_000)
        program = "import time; a = time.time_ns(); time.sleep(1.5); print(a)"
        out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
        bare = {"LD_PRELOAD": os.environ["LD_PRELOAD"]}
        clean = subprocess.run([sys.executable, "-c", program], env=bare, capture_output=True, text=True)
        result(first=int(out.stdout), second=int(clean.stdout), h=now())
        """
    )
    epoch = 1_700_000_000_000_000_000
    assert got["first"] == epoch + 7_000
    # `run(timeout=30)` polls; the child's clock is joined either way, then the second child adds its own sleep.
    assert got["second"] >= epoch + 1_500_007_000
    assert got["h"] == got["second"] - epoch + 1_500_000_000


def test_system_and_popen_children_join_too(run_on) -> None:  # noqa: F811
    got = run_on().one(
        """
        status = os.system("sleep 2")
        first = now()
        with os.popen("sleep 3; echo done") as pipe: text = pipe.read()
        result(status=status, text=text, first=first, h=now())
        """
    )
    assert got["status"] == 0
    assert got["text"] == "done\n"
    # The shell carries its child's clock on, because it waits for it.
    assert got["h"] >= got["first"]


def test_a_sleeping_subprocess_does_not_time_out(run_on) -> None:  # noqa: F811
    """While a rank looks after a child its sleeps take real time too."""
    got = run_on().one(
        """
        import subprocess
        program = "import hashlib\\nfor _ in range(400_000): hashlib.sha256(b'x').digest()"
        out = subprocess.run([sys.executable, "-c", program], timeout=20)
        result(code=out.returncode, h=now())
        """
    )
    assert got["code"] == 0
    assert got["h"] < 20_000_000_000


def test_a_child_that_uses_the_gpu_becomes_a_further_actor(run_on) -> None:  # noqa: F811
    run = run_on()
    got = run.one(
        """
        shim.phantora_advance_ns(1_000)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            shim.phantora_advance_ns(500)
            shim.phantora_set_driving(1)
            shim.phantora_mark(4, 1, b"child")
            os.write(writer, f"{shim.phantora_mode()} {now()}".encode())
            os._exit(0)
        text = os.read(reader, 100).decode()
        os.waitpid(pid, 0)
        result(text=text, h=now())
        """
    )
    assert got["text"] == "3 1500"
    assert got["h"] == 1_500
    if run.core.actors:
        assert [record.kind for record in run.core.actors[-1].records] == [12, 15]
        assert len(run.core.actors) == 2


def test_exit_status_reaches_the_core(run_of) -> None:  # noqa: F811
    for program, status in (("sys.exit(5)", 5), ("os._exit(6)", 6), ("raise RuntimeError('x')", 1)):
        run = run_of()
        run.finish(run.start(0, program), status=status)
        import time

        time.sleep(0.05)
        assert run.core.actors[0].exit_status == status, program


def test_multiprocessing_pools_work(run_on) -> None:  # noqa: F811
    got = run_on().one(
        """
        import multiprocessing, math
        totals = {}
        for method in ("fork",):
            with multiprocessing.get_context(method).Pool(2) as pool: totals[method] = pool.map(math.sqrt, [1, 4, 9])
        result(totals=totals, h=now())
        """
    )
    assert got["totals"] == {"fork": [1.0, 2.0, 3.0]}
