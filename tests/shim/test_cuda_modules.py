"""Modules loaded at run time: cubins are read for registers, shared memory and parameters; PTX for names."""

from __future__ import annotations

import struct

from cuda_support import PRELUDE
from shim_support import run_snippet


def cubin() -> bytes:
    """A cubin's skeleton, by hand: one kernel of 48 registers and 2 KiB of shared memory, with three parameters."""
    kernel = b"triton_poi_fused_add_0"
    info = b""  # of the kernel: KPARAM_INFO (0x17) records, MAX_THREADS (0x05)
    for ordinal, (offset, size) in enumerate(((0, 8), (8, 8), (16, 4))):
        info += struct.pack("<BBHIHHI", 4, 0x17, 12, 0, ordinal, offset, size << 18 | 0x1F000)
    info += struct.pack("<BBH3I", 4, 0x05, 12, 256, 1, 1)
    info += struct.pack("<BBH", 3, 0x1B, 0xFF)  # a record without a payload
    module_info = struct.pack("<BBHII", 4, 0x2F, 8, 1, 48) + struct.pack("<BBHII", 4, 0x11, 8, 1, 16)
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 3, 0, 128)
    sections = [  # name, type, content, size, link
        (b"", 0, b"", 0, 0),
        (b".shstrtab", 3, None, 0, 0),
        (b".strtab", 3, b"\0" + kernel + b"\0", 0, 0),
        (b".text." + kernel, 1, bytes(128), 0, 0),
        (b".symtab", 2, symbols, 0, 2),
        (b".nv.info", 0x70000000, module_info, 0, 4),
        (b".nv.info." + kernel, 0x70000000, info, 0, 4),
        (b".nv.shared." + kernel, 8, b"", 2048, 0),
    ]
    names = b"\0".join(name for name, *_ in sections) + b"\0"
    body, headers, at = b"", b"", 64
    for name, kind, content, size, link in sections:
        data = names if content is None else content
        place = names.index(b"\0" + name + b"\0") + 1 if name else 0
        headers += struct.pack("<IIQQQQIIQQ", place, kind, 0, 0, at + len(body), size or len(data), link, 0, 1, 0)
        body += data
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    start = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, at + len(body), 0, 64, 0, 0, 64, len(sections), 1)
    return ident + start + body + headers


def test_a_cubin_is_read(tmp_path):
    file = tmp_path / "kernel.cubin"
    file.write_bytes(cubin())
    run_snippet(
        tmp_path,
        PRELUDE
        + f"""
ok(cuda.cudaFree(None))
module, function, value = c_void_p(), c_void_p(), c_int()
assert driver.cuModuleLoad(byref(module), b"/nothing/here") == 301
assert driver.cuModuleLoad(byref(module), {str(file)!r}.encode()) == 0
assert driver.cuModuleGetFunction(byref(function), module, b"no_such_kernel") == 500
assert driver.cuModuleGetFunction(byref(function), module, b"triton_poi_fused_add_0") == 0
for attribute, wanted in {{0: 256, 1: 2048, 3: 16, 4: 48, 6: 90}}.items():
    assert driver.cuFuncGetAttribute(byref(value), attribute, function) == 0 and value.value == wanted, attribute
assert driver.cuFuncGetAttribute(byref(value), 17, function) == 1       # Triton falls back on this answer
assert driver.cuFuncSetAttribute(function, 8, 232448 - 2048) == 0 and driver.cuFuncSetAttribute(function, 8, 232448) == 1
offset, size = c_size_t(), c_size_t()
seen = []
while driver.cuFuncGetParamInfo(function, c_size_t(len(seen)), byref(offset), byref(size)) == 0:
    seen.append((offset.value, size.value))
assert seen == [(0, 8), (8, 8), (16, 4)]
pointers, count = [c_void_p(malloc(4096)) for _ in range(2)], c_int(1024)
arguments = (c_void_p * 3)(*(ctypes.addressof(x) for x in (*pointers, count)))
launch = driver.cuLaunchKernel
assert launch(function, 4, 1, 1, 256, 1, 1, 0, c_void_p(stream()), arguments, None) == 0
assert launch(c_void_p(77), 4, 1, 1, 256, 1, 1, 0, None, arguments, None) == 400
config = struct.pack("<7I4xQQI4x", 4, 1, 1, 256, 1, 1, 0, 0, 0, 0)
assert driver.cuLaunchKernelEx(config, function, arguments, None) == 0
assert driver.cuModuleUnload(module) == 0 and driver.cuModuleUnload(module) == 400
""",
    )


def test_ptx_names_its_kernels(tmp_path):
    run_snippet(
        tmp_path,
        PRELUDE
        + """
ok(cuda.cudaFree(None))
ptx = b"//\\n.version 8.8\\n.target sm_90a\\n.visible .entry first(.param .u64 a) { ret; }\\n.entry\\tsecond() { ret; }\\n"
module, function, count = c_void_p(), c_void_p(), c_uint()
assert driver.cuModuleLoadDataEx(byref(module), ptx, 0, None, None) == 0
assert driver.cuModuleGetFunctionCount(byref(count), module) == 0 and count.value == 2
for name in (b"first", b"second"): assert driver.cuModuleGetFunction(byref(function), module, name) == 0
assert driver.cuModuleGetFunction(byref(function), module, b"third") == 500
assert driver.cuModuleLoadData(byref(module), b".version 8.8\\n") == 200
""",
    )
