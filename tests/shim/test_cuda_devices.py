"""Devices, contexts, properties and look-ups by name."""

from __future__ import annotations

from cuda_support import PRELUDE
from shim_support import run_snippet


def test_properties_follow_the_profile_in_both_apis(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
raw = (c_char * 1008)()
ok(cuda.cudaGetDeviceProperties(raw, 0))
assert raw.raw.split(b"\\0")[0] == b"NVIDIA H100 80GB HBM3"
assert struct.unpack_from("<Q", raw.raw, 288)[0] == 80998 * MiB      # totalGlobalMem
major, minor = struct.unpack_from("<2i", raw.raw, 360)
assert (major, minor) == (9, 0)
total = c_size_t()
assert driver.cuInit(0) == 0 and driver.cuDeviceTotalMem_v2(byref(total), 0) == 0
assert total.value == 80998 * MiB
for attribute, wanted in {16: 132, 75: 9, 76: 0, 81: 233472, 97: 232448, 39: 2048, 10: 32, 102: 1, 115: 1}.items():
    for call in (cuda.cudaDeviceGetAttribute, driver.cuDeviceGetAttribute):
        value = c_int(-1)
        assert call(byref(value), attribute, 0) == 0 and value.value == wanted, attribute
value = c_int()
assert driver.cuDeviceGetAttribute(byref(value), 9999, 0) == 1
assert driver.cuDeviceGetAttribute(byref(value), 16, 7) == 101
name = ctypes.create_string_buffer(13)
ok(cuda.cudaDeviceGetPCIBusId(name, 13, 0))
found = c_int(-1)
ok(cuda.cudaDeviceGetByPCIBusId(byref(found), name))
assert found.value == 0
""",
    )


def test_visible_devices_are_read_at_first_use(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"     # late, but before CUDA was asked for anything
count = c_int(7)
assert cuda.cudaGetDeviceCount(byref(count)) == 100 and count.value == 0
assert cuda.cudaGetLastError() == 100 and cuda.cudaGetLastError() == 0
assert driver.cuDeviceGetCount(byref(count)) == 0 and count.value == 0
""",
    )


def test_a_context_is_made_by_first_use_and_charged_once(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
flags, active = c_uint(), c_int(-1)
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active)) == 0 and active.value == 0
current = c_void_p(1)
assert driver.cuCtxGetCurrent(byref(current)) == 0 and current.value is None
assert driver.cuMemAlloc_v2(byref(c_uint64()), c_size_t(4)) == 201      # the driver has no implicit context
ok(cuda.cudaSetDevice(0))
assert driver.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active)) == 0 and active.value == 1
assert used() == 551 * MiB
ok(cuda.cudaSetDevice(0))
retained = c_void_p()
assert driver.cuDevicePrimaryCtxRetain(byref(retained), 0) == 0
assert driver.cuCtxGetCurrent(byref(current)) == 0 and current.value == retained.value
assert used() == 551 * MiB
second = c_void_p()
assert driver.cuCtxCreate_v4(byref(second), None, 0, 0) == 0 and used() == 2 * 551 * MiB
assert driver.cuCtxDestroy_v2(second) == 0
assert driver.cuCtxGetCurrent(byref(current)) == 0 and current.value == retained.value and used() == 551 * MiB
assert cuda.cudaSetDevice(1) == 101
""",
    )


def test_names_are_found_as_the_table_says(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
function, result = c_void_p(), c_int(-1)
def look(name):
    return cuda.cudaGetDriverEntryPointByVersion(name, byref(function), 13000, c_ulonglong(0), byref(result))
def at(name): return ctypes.cast(getattr(driver, name), c_void_p).value
assert look(b"cuMemAlloc") == 0 and result.value == 0 and function.value == at("cuMemAlloc_v2")
assert look(b"cuCtxCreate") == 0 and function.value == at("cuCtxCreate_v4")
assert look(b"cuNothing") == 0 and result.value == 1 and not function.value
assert driver.cuGetProcAddress_v2(b"cuLaunchKernelEx", byref(function), 13000, c_uint64(0), byref(result)) == 0
assert function.value == at("cuLaunchKernelEx")
assert driver.cuGetProcAddress_v2(b"cuNothing", byref(function), 13000, c_uint64(0), byref(result)) == 500
table = c_void_p(5)
assert driver.cuGetExportTable(byref(table), (c_char * 16)()) == 500 and not table.value
""",
    )


def test_a_child_forked_after_first_use_is_told_so(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
early = os.fork()
if early == 0:
    malloc(512)
    os._exit(0)
assert os.waitpid(early, 0)[1] == 0
malloc(512)
late = os.fork()
if late == 0:
    os._exit(0 if cuda.cudaMalloc(byref(c_void_p()), c_size_t(512)) == 3 and cuda.cudaSetDevice(0) == 3 else 1)
assert os.waitpid(late, 0)[1] == 0
""",
    )
