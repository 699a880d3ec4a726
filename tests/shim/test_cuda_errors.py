"""Errors: the thread's last one, names and texts, launches that cannot be, refused calls."""

from __future__ import annotations

from cuda_support import PRELUDE
from shim_support import run_snippet


def test_last_errors_are_kept_per_thread_until_taken(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
import threading
assert cuda.cudaSetDevice(99) == 101
seen = []
thread = threading.Thread(target=lambda: seen.append(cuda.cudaGetLastError()))
thread.start(); thread.join()
assert seen == [0]
ok(cuda.cudaSetDevice(0))                                 # success does not clear it
assert cuda.cudaPeekAtLastError() == 101 and cuda.cudaGetLastError() == 101 and cuda.cudaPeekAtLastError() == 0
assert driver.cuCtxSetCurrent(c_void_p(12)) == 201        # the driver API keeps no last error
assert cuda.cudaGetLastError() == 0
""",
    )


def test_names_and_texts(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
assert cuda.cudaGetErrorName(2) == b"cudaErrorMemoryAllocation" and cuda.cudaGetErrorString(2) == b"out of memory"
assert cuda.cudaGetErrorString(700) == b"an illegal memory access was encountered"
assert cuda.cudaGetErrorString(77) == b"unrecognized error code"
text = ctypes.c_char_p()
assert driver.cuGetErrorName(2, byref(text)) == 0 and text.value == b"CUDA_ERROR_OUT_OF_MEMORY"
assert driver.cuGetErrorString(201, byref(text)) == 0 and text.value == b"invalid device context"
assert driver.cuGetErrorName(9, byref(text)) == 1         # a code of the runtime only
""",
    )


def test_kernels_and_launch_shapes(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
class Dim3(ctypes.Structure): _fields_ = [(n, c_uint) for n in "xyz"]
cuda.__cudaRegisterFatBinary.restype = c_void_p
globals()["register"] = getattr(cuda, "__cudaRegisterFunction")
binary = c_void_p(getattr(cuda, "__cudaRegisterFatBinary")(None))
stub = (c_char * 1)()
register(binary, stub, None, b"_Z5helloi", -1, None, None, None, None, None)
def launch(where, grid, block, shared=0):
    count = c_int(5)
    arguments = (c_void_p * 1)(ctypes.addressof(count))
    return cuda.cudaLaunchKernel(where, Dim3(*grid), Dim3(*block), arguments, c_size_t(shared), None)
assert launch(stub, (4, 1, 1), (128, 1, 1)) == 0
assert launch(stub, (4, 1, 1), (1025, 1, 1)) == 9 and launch(stub, (0, 1, 1), (1, 1, 1)) == 9
assert launch(stub, (1, 1, 1), (32, 1, 1), 300000) == 1
assert launch((c_char * 1)(), (1, 1, 1), (1, 1, 1)) == 98   # never registered
assert cuda.cudaGetLastError() == 98
blocks = c_int()
ok(cuda.cudaOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), stub, 1024, c_size_t(0)))
assert blocks.value == 1                                     # 40 registers a thread: 1 block of 1024
ok(cuda.cudaOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), stub, 128, c_size_t(100_000)))
assert blocks.value == 2                                     # shared memory decides
attributes = (c_ubyte * 144)()
ok(cuda.cudaFuncGetAttributes(attributes, stub))
assert struct.unpack_from("<i", attributes, 24)[0] == 1024
assert cuda.cudaLaunchCooperativeKernel(stub, Dim3(100000, 1, 1), Dim3(128, 1, 1), None, c_size_t(0), None) == 720
""".replace("cuda.__cudaRegisterFatBinary.restype", 'getattr(cuda, "__cudaRegisterFatBinary").restype'),
    )


def test_refused_calls_say_so(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
assert cuda.cudaIpcGetMemHandle((c_char * 64)(), c_void_p(malloc(512))) == 801 and cuda.cudaGetLastError() == 801
assert cuda.cudaGraphCreate(byref(c_void_p()), 0) == 801
assert driver.cuMulticastCreate(byref(c_uint64()), None) == 801
assert ctypes.CDLL("libcufft.so.12").cufftCreate(byref(c_int())) == 16
assert ctypes.CDLL("libcusolver.so.12").cusolverDnSgetrf(None) == 9
""",
    )
