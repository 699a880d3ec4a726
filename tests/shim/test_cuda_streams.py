"""Streams, events, host functions, captures. Times are the core's; here only order, states and handles are checked."""

from __future__ import annotations

from cuda_support import PRELUDE
from shim_support import run_snippet


def test_handles_are_checked(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
s, e = stream(), event()
for handle in (0, 1, 2, s): ok(cuda.cudaStreamSynchronize(c_void_p(handle)))
for wrong in (3, s + 1, e.value):
    assert cuda.cudaStreamSynchronize(c_void_p(wrong)) == 400
assert cuda.cudaEventRecord(c_void_p(s), c_void_p(s)) == 400
ok(cuda.cudaStreamDestroy(c_void_p(s)))
assert cuda.cudaStreamQuery(c_void_p(s)) == 400 and cuda.cudaStreamDestroy(c_void_p(s)) == 400
ok(cuda.cudaEventDestroy(e))
assert cuda.cudaEventQuery(e) == 400
""",
    )


def test_priorities_flags_ids_and_devices(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
least, greatest = c_int(), c_int()
ok(cuda.cudaDeviceGetStreamPriorityRange(byref(least), byref(greatest)))
assert (least.value, greatest.value) == (0, -5)
ids = set()
for asked, given in ((0, 0), (-3, -3), (-9, -5), (4, 0)):
    handle, priority, flags, number, device = c_void_p(), c_int(), c_uint(), c_ulonglong(), c_int(-1)
    ok(cuda.cudaStreamCreateWithPriority(byref(handle), c_uint(1), c_int(asked)))
    ok(cuda.cudaStreamGetPriority(handle, byref(priority)))
    ok(cuda.cudaStreamGetFlags(handle, byref(flags)))
    ok(cuda.cudaStreamGetId(handle, byref(number)))
    ok(cuda.cudaStreamGetDevice(handle, byref(device)))
    assert (priority.value, flags.value, device.value) == (given, 1, 0)
    ids.add(number.value)
assert len(ids) == 4
""",
    )


def test_events_that_were_never_recorded_or_have_no_timing(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
a, b, untimed, ms = event(), event(), event(2), c_float(-1)
ok(cuda.cudaEventQuery(a))                                # never recorded: complete
ok(cuda.cudaEventSynchronize(a))
ok(cuda.cudaStreamWaitEvent(None, a, 0))
assert cuda.cudaEventElapsedTime(byref(ms), a, b) == 400
for e in (a, b, untimed): ok(cuda.cudaEventRecord(e, None))
ok(cuda.cudaEventSynchronize(b))
ok(cuda.cudaEventElapsedTime(byref(ms), a, b))
assert ms.value >= 0
assert cuda.cudaEventElapsedTime(byref(ms), a, untimed) == 400
""",
    )


def test_host_functions_run_in_order_at_the_next_wait_of_their_stream(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
seen = []
Function = ctypes.CFUNCTYPE(None, c_void_p)
calls = [Function(lambda _, n=n: seen.append(n)) for n in range(4)]
a, b = stream(), stream()
for call, where in zip(calls, (a, b, a, b)): ok(cuda.cudaLaunchHostFunc(c_void_p(where), call, None))
assert seen == []
ok(cuda.cudaStreamSynchronize(c_void_p(a)))
assert seen == [0, 2]
ok(cuda.cudaDeviceSynchronize())
assert seen == [0, 2, 1, 3]
""",
    )


def test_no_stream_captures_and_capturing_is_refused(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
s, status, number = stream(), c_int(9), c_ulonglong(9)
ok(cuda.cudaStreamIsCapturing(c_void_p(s), byref(status)))
assert status.value == 0
ok(cuda.cudaStreamGetCaptureInfo(c_void_p(s), byref(status), byref(number), None, None, None, None))
assert status.value == 0
assert cuda.cudaStreamBeginCapture(c_void_p(s), 0) == 801 and cuda.cudaGetLastError() == 801
mode = c_int(2)
ok(cuda.cudaThreadExchangeStreamCaptureMode(byref(mode)))
assert mode.value == 0
ok(cuda.cudaThreadExchangeStreamCaptureMode(byref(mode)))
assert mode.value == 2
""",
    )
