"""Device memory: accounting to the byte, out of memory, virtual memory management, pools, host memory."""

from __future__ import annotations

from cuda_support import PRELUDE
from shim_support import need, run_snippet


def test_accounting_is_in_the_drivers_granules(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
ok(cuda.cudaFree(None))
base = used()
small = [malloc(1000) for _ in range(100)]                # 100 times 1024 bytes: one granule
assert used() == base + 2 * MiB
assert len(set(small)) == 100 and all(p % 512 == 0 for p in small)
assert small[1] - small[0] == 1024
big = malloc(MiB)                                         # from 1 MiB on: granules of its own
assert used() == base + 4 * MiB and big % (2 * MiB) == 0
bigger = malloc(5 * MiB + 1)
assert used() == base + 10 * MiB
for pointer in small: free(pointer)
assert used() == base + 8 * MiB
free(bigger)
assert malloc(6 * MiB) == bigger                          # first fit
assert cuda.cudaFree(c_void_p(big + 512)) == 1 and cuda.cudaFree(c_void_p(12345)) == 1
nothing = c_void_p(7)
assert cuda.cudaMalloc(byref(nothing), c_size_t(0)) == 0 and not nothing.value
""",
    )


def test_out_of_memory_leaves_everything_usable(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
pointer = malloc(70 << 30)
before = used()
other = c_void_p(99)
assert cuda.cudaMalloc(byref(other), c_size_t(10 << 30)) == 2
assert cuda.cudaPeekAtLastError() == 2 and cuda.cudaGetLastError() == 2 and cuda.cudaGetLastError() == 0
assert used() == before
assert cuda.cudaMalloc(byref(other), c_size_t(1 << 60)) == 2
free(pointer)
left = (80998 * MiB - used()) // (2 * MiB) * 2 * MiB        # what is left, in the granules of the driver
everything = malloc(left)                                 # the last granule can be had, one more cannot
assert cuda.cudaMalloc(byref(other), c_size_t(1)) == 2
free(everything)
upload(malloc(16), b"still works here")
""",
    )


def test_freed_memory_reads_as_zeros(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
for size in (600, 3 * MiB):
    pointer = malloc(size)
    upload(pointer + 17, b"secret")
    assert download(pointer + 17, 6) == b"secret"
    free(pointer)
    assert malloc(size) == pointer and not known(pointer + 17, 6)
    assert download(pointer, 600) == bytes(600)
""",
    )


def test_virtual_memory_management(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
ok(cuda.cudaFree(None))
base = used()
prop = (c_ubyte * 32)()
struct.pack_into("<4i", prop, 0, 1, 0, 1, 0)              # pinned, no handle type, on device 0
access = struct.pack("<3i", 1, 0, 3)
grain = c_size_t()
assert driver.cuMemGetAllocationGranularity(byref(grain), prop, 0) == 0 and grain.value == 2 * MiB
space = c_uint64()
assert driver.cuMemAddressReserve(byref(space), c_size_t(64 << 30), c_size_t(0), c_uint64(0), c_uint64(0)) == 0
assert used() == base
handles = []
for i in range(3):
    handle = c_uint64()
    assert driver.cuMemCreate(byref(handle), c_size_t(20 * MiB), prop, c_uint64(0)) == 0
    at = c_uint64(space.value + i * 20 * MiB)
    assert driver.cuMemMap(at, c_size_t(20 * MiB), c_size_t(0), handle, c_uint64(0)) == 0
    handles.append(handle)
assert used() == base + 60 * MiB
assert driver.cuMemMap(c_uint64(space.value), c_size_t(20 * MiB), c_size_t(0), handles[0], c_uint64(0)) == 1   # taken
assert driver.cuMemSetAccess(c_uint64(space.value), c_size_t(60 * MiB), access, c_size_t(1)) == 0
assert driver.cuMemSetAccess(c_uint64(space.value), c_size_t(80 * MiB), access, c_size_t(1)) == 1  # not all mapped
upload(space.value + 19 * MiB, b"x" * (MiB // 2))
assert download(space.value + 19 * MiB, 5) == b"xxxxx"
for handle in handles: assert driver.cuMemRelease(handle) == 0
assert used() == base + 60 * MiB                          # mapped memory outlives its handle
assert driver.cuMemUnmap(c_uint64(space.value), c_size_t(20 * MiB)) == 0 and used() == base + 40 * MiB
assert driver.cuMemUnmap(c_uint64(space.value + 20 * MiB), c_size_t(40 * MiB)) == 0 and used() == base
assert driver.cuMemAddressFree(space, c_size_t(64 << 30)) == 0
handle = c_uint64()
assert driver.cuMemCreate(byref(handle), c_size_t(100 << 30), prop, c_uint64(0)) == 2
assert driver.cuMemExportToShareableHandle(byref(c_int()), handle, 1, c_uint64(0)) == 801  # refused
""",
    )


def test_pools_and_managed_memory(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
pool, pointer, value = c_void_p(), c_void_p(), c_uint64()
ok(cuda.cudaDeviceGetDefaultMemPool(byref(pool), 0))
s = stream()
ok(cuda.cudaMallocAsync(byref(pointer), c_size_t(3 * MiB), c_void_p(s)))
ok(cuda.cudaMemPoolGetAttribute(pool, 7, byref(value)))
assert value.value == 3 * MiB
ok(cuda.cudaFreeAsync(pointer, c_void_p(s)))
ok(cuda.cudaMemPoolGetAttribute(pool, 7, byref(value)))
assert value.value == 0
ok(cuda.cudaMemPoolGetAttribute(pool, 8, byref(value)))
assert value.value == 3 * MiB
assert cuda.cudaMemPoolGetAttribute(c_void_p(8), 7, byref(value)) == 1
before = used()
ok(cuda.cudaMallocManaged(byref(pointer), c_size_t(4096), 1))
ctypes.memset(pointer, 7, 4096)                           # the host reaches it
attributes = (c_ubyte * 96)()
ok(cuda.cudaPointerGetAttributes(attributes, pointer))
assert struct.unpack_from("<2i2Q", attributes) == (3, 0, pointer.value, pointer.value)
free(pointer.value)
assert used() == before
""",
    )


def test_torch_raises_its_own_error_and_recovers(tmp_path):
    need("torch")
    run_snippet(
        tmp_path,
        """
import torch
keep = torch.empty(60 << 30, dtype=torch.uint8, device="cuda")
try:
    torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
    raise SystemExit("90 GiB fitted")
except torch.OutOfMemoryError as error:
    assert "Tried to allocate 30.00 GiB" in str(error) and "79.10 GiB" in str(error), error
del keep
torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
assert torch.cuda.max_memory_allocated() == 60 << 30
""",
    )


def test_torch_with_expandable_segments(tmp_path):
    need("torch")
    run_snippet(
        tmp_path,
        """
import torch
blocks = [torch.empty(100 << 20, dtype=torch.uint8, device="cuda") for _ in range(20)]
assert torch.cuda.memory_reserved() == 20 * (100 << 20)
del blocks
torch.empty(1500 << 20, dtype=torch.uint8, device="cuda")     # fits into what was freed
assert torch.cuda.memory_reserved() == 20 * (100 << 20)
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0
assert torch.tensor([1, 2, 3]).cuda().cpu().tolist() == [1, 2, 3]
""",
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
    )
