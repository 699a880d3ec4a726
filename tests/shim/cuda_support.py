"""Calls of the CUDA runtime and driver through ctypes, for texts that run under the preloaded shim."""

from __future__ import annotations

PRELUDE = """
import ctypes, os, struct, sys
from ctypes import byref, c_char, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ulonglong, c_void_p
cuda = ctypes.CDLL("libcudart.so.13")
driver = ctypes.CDLL("libcuda.so.1")
for library in (cuda, driver):
    for name in ("cudaGetErrorName", "cudaGetErrorString"):
        getattr(library, name).restype = ctypes.c_char_p
def address(value): return value if isinstance(value, c_void_p) else c_void_p(value)
def ok(status):
    assert status == 0, (status, cuda.cudaGetErrorName(status))
def malloc(size):
    pointer = c_void_p()
    ok(cuda.cudaMalloc(byref(pointer), c_size_t(size)))
    return pointer.value
def free(pointer): ok(cuda.cudaFree(c_void_p(pointer)))
def used():
    left, total = c_size_t(), c_size_t()
    ok(cuda.cudaMemGetInfo(byref(left), byref(total)))
    return total.value - left.value
def upload(pointer, data, stream=0):
    ok(cuda.cudaMemcpyAsync(c_void_p(pointer), data, c_size_t(len(data)), 1, c_void_p(stream)))
def download(pointer, size, stream=0):
    buffer = ctypes.create_string_buffer(b"\\xee" * size, size)
    ok(cuda.cudaMemcpyAsync(buffer, c_void_p(pointer), c_size_t(size), 2, c_void_p(stream)))
    ok(cuda.cudaStreamSynchronize(c_void_p(stream)))
    return buffer.raw
def known(pointer, size): return cuda.phantora_is_known(c_void_p(pointer), c_size_t(size))
def unknown(pointer, size): cuda.phantora_mark_unknown(c_void_p(pointer), c_size_t(size))
def stream(flags=1):
    handle = c_void_p()
    ok(cuda.cudaStreamCreateWithFlags(byref(handle), c_uint(flags)))
    return handle.value
def event(flags=0):
    handle = c_void_p()
    ok(cuda.cudaEventCreateWithFlags(byref(handle), c_uint(flags)))
    return handle
MiB = 1 << 20
"""
