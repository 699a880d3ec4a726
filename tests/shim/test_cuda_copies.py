"""Pointers, copies, fills, and what is known of device bytes."""

from __future__ import annotations

from cuda_support import PRELUDE
from shim_support import run_snippet


def test_pointer_kinds(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
def kind(pointer):
    attributes = (c_ubyte * 96)()
    ok(cuda.cudaPointerGetAttributes(attributes, c_void_p(pointer)))
    return struct.unpack_from("<2i2Q", attributes)
device, host = malloc(4096), c_void_p()
assert kind(device + 100) == (2, 0, device + 100, 0)
ok(cuda.cudaHostAlloc(byref(host), c_size_t(5000), 0))
assert kind(host.value + 4999) == (1, 0, host.value + 4999, host.value + 4999)
assert kind(host.value + 5000)[0] == 0
pageable = ctypes.create_string_buffer(8192)
at = ctypes.addressof(pageable)
assert kind(at) == (0, -2, 0, at)
ok(cuda.cudaHostRegister(pageable, c_size_t(8192), 0))
assert kind(at)[0] == 1
assert cuda.cudaHostRegister(pageable, c_size_t(10), 0) == 712
ok(cuda.cudaHostUnregister(pageable))
assert kind(at)[0] == 0 and cuda.cudaHostUnregister(pageable) == 713
ok(cuda.cudaFreeHost(host))
value = c_uint64()
assert driver.cuPointerGetAttribute(byref(value), 3, c_uint64(device)) == 0 and value.value == device
base, size = c_uint64(), c_size_t()
assert driver.cuMemGetAddressRange_v2(byref(base), byref(size), c_uint64(device + 17)) == 0
assert (base.value, size.value) == (device, 4096)
assert driver.cuPointerGetAttribute(byref(value), 3, c_uint64(at)) == 1
""",
    )


def test_small_copies_are_real_and_large_ones_are_unknown(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
import random
data = random.Random(1).randbytes(MiB)
pointer = malloc(8 * MiB)
upload(pointer + 3, data)
assert download(pointer + 3, MiB) == data and known(pointer + 3, MiB)
assert not known(pointer + 2, 2) and not known(pointer + 3, MiB + 1)
upload(pointer, b"z" * (2 * MiB))                         # more than 1 MiB: unknown, and that reads as zeros
assert not known(pointer, 1) and download(pointer, 2 * MiB) == bytes(2 * MiB)
upload(pointer + 5 * MiB, b"tail")
big = download(pointer, 6 * MiB)                          # large reads carry what is known
assert big[5 * MiB : 5 * MiB + 4] == b"tail" and big.count(0) == 6 * MiB - 4
""",
    )


def test_unknown_bytes_are_cleared_to_the_byte(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
import random
rng = random.Random(2)
size = 6 * MiB
pointer = malloc(size)
content, real = bytearray(size), bytearray(size)
for _ in range(400):
    first = rng.randrange(size)
    length = min(size - first, rng.choice((1, 4, 100, 4096, 5000, 70_000, MiB, 3 * MiB)))
    if rng.random() < 0.5 and length <= MiB:
        data = rng.randbytes(length)
        upload(pointer + first, data)
        content[first : first + length] = data
        real[first : first + length] = b"1" * length
    else:
        unknown(pointer + first, length)
        content[first : first + length] = bytes(length)
        real[first : first + length] = bytes(length)
    probe = rng.randrange(size)
    width = min(size - probe, rng.choice((1, 8, 4096, 100_000)))
    assert download(pointer + probe, width) == content[probe : probe + width]
    assert known(pointer + probe, width) == (0 not in real[probe : probe + width]), (probe, width)
assert download(pointer, size) == content
""",
    )


def test_copies_on_the_device_carry_what_is_known(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
import random
rng = random.Random(3)
size = 5 * MiB
a, b = malloc(size), malloc(size)
for _ in range(50): upload(a + rng.randrange(size - 1000), rng.randbytes(rng.randrange(1, 1000)))
upload(b, rng.randbytes(1000))
ok(cuda.cudaMemcpyAsync(c_void_p(b), c_void_p(a), c_size_t(size), 3, None))
assert download(b, size) == download(a, size)
for _ in range(300):
    at, width = rng.randrange(size - 5000), rng.randrange(1, 5000)
    assert known(a + at, width) == known(b + at, width)
before = download(a, size)                                 # overlapping, both ways
ok(cuda.cudaMemcpyAsync(c_void_p(a + 777), c_void_p(a), c_size_t(size - 777), 3, None))
assert download(a, size)[777:] == before[: size - 777]
""",
    )


def test_fills_and_pitched_copies(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
pointer = malloc(64 * MiB)
upload(pointer, b"x" * 100)
ok(cuda.cudaMemsetAsync(c_void_p(pointer), 0, c_size_t(64 * MiB), None))
assert known(pointer, 64 * MiB) and download(pointer, 100) == bytes(100)
ok(cuda.cudaMemset(c_void_p(pointer + 10), 0xAB, c_size_t(20)))
assert download(pointer, 40) == bytes(10) + b"\\xab" * 20 + bytes(10)
ok(driver.cuMemsetD32Async(c_uint64(pointer + 100), 0x01020304, c_size_t(3), None))
assert download(pointer + 100, 12) == b"\\x04\\x03\\x02\\x01" * 3
assert driver.cuMemsetD32Async(c_uint64(pointer + 101), 0, c_size_t(3), None) == 1
rows = b"".join(bytes([65 + y]) * 10 for y in range(4))
ok(cuda.cudaMemcpy2D(c_void_p(pointer + 4096), c_size_t(512), rows, c_size_t(10), c_size_t(10), c_size_t(4), 1))
assert download(pointer + 4096 + 2 * 512, 11) == b"C" * 10 + bytes(1)
back = ctypes.create_string_buffer(40)
ok(cuda.cudaMemcpy2D(back, c_size_t(10), c_void_p(pointer + 4096), c_size_t(512), c_size_t(10), c_size_t(4), 2))
assert back.raw == rows
""",
    )


def test_copies_that_cannot_be(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
pointer, host = malloc(512), ctypes.create_string_buffer(512)
def memcpy(to, source, kind): return cuda.cudaMemcpy(address(to), address(source), c_size_t(8), kind)
at = ctypes.addressof(host)
assert memcpy(at, at, 1) == 1 and memcpy(at, pointer, 3) == 1 and memcpy(pointer, at, 2) == 1
assert memcpy(pointer, at, 9) == 21
free(pointer)
assert memcpy(pointer, at, 4) == 1                         # freed
assert cuda.cudaMemset(c_void_p(at), 0, c_size_t(8)) == 1  # pageable host memory
""",
    )
