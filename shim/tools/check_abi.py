"""Checks the shim against NVIDIA's own headers: struct layouts and constants (shim/abi/*.cpp), and prototypes.

usage: check_abi.py --cuda DIR [--compiler CXX]

DIR holds cu13/include, cudnn/include and nccl/include, as the header wheels install them. Layouts are asserted by
compiling shim/abi/*.cpp. Prototypes: each function that the shim defines must take the same number of parameters of the
same sizes as the header declares; pointers and 8-byte integers count as equal, as the calling convention passes them
alike.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

SHIM = Path(__file__).resolve().parent.parent
WIDE = {
    "CUcontext",
    "CUdeviceptr",
    "CUevent",
    "CUfunction",
    "CUhostFn",
    "CUkernel",
    "CUlibrary",
    "CUlogsCallback",
    "CUlogsCallbackHandle",
    "CUmemGenericAllocationHandle",
    "CUmemoryPool",
    "CUmodule",
    "CUoccupancyB2DSize",
    "CUstream",
    "CUstreamCallback",
    "DevicePointer",
    "cublasHandle_t",
    "cublasLtHandle_t",
    "cublasLtMatmulDesc_t",
    "cublasLtMatmulPreference_t",
    "cublasLtMatrixLayout_t",
    "cudaEvent_t",
    "cudaFunction_t",
    "cudaGraph_t",
    "cudaHostFn_t",
    "cudaKernel_t",
    "cudaLibrary_t",
    "cudaMemPool_t",
    "cudaStreamCallback_t",
    "cudaStream_t",
    "cudnnHandle_t",
    "cuuint64_t",
    "int64_t",
    "long",
    "long long",
    "ncclComm_t",
    "ncclWindow_t",
    "nvmlDevice_t",
    "size_t",
    "std::size_t",
    "std::uint64_t",
    "uint64_t",
    "unsigned long",
    "unsigned long long",
}
FLOAT = {"float": "float", "double": "double"}
STRUCT = {
    "dim3": "Dim3",
    "Dim3": "Dim3",
    "cudaExtent": "Extent",
    "Extent": "Extent",
    "cudaMemLocation": "MemoryLocation",
    "CUmemLocation": "MemoryLocation",
    "MemoryLocation": "MemoryLocation",
}


def strip_comments(text: str) -> str:
    """Text without comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def split_parameters(text: str) -> list[str]:
    """Splits a parameter list at its top-level commas."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += char in "(<[{"
        depth -= char in ")>]}"
        if char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip() not in ("", "void")]


def passing(parameter: str) -> str:
    """How a parameter is passed: `q` 8 bytes, `d` 4 bytes or less, a float type, or a struct's name."""
    parameter = re.sub(r"__dv\(.*?\)|=.*$", "", parameter)
    if any(mark in parameter for mark in "*&[") or "(" in parameter:
        return "q"
    words = [w for w in parameter.split() if w not in ("const", "enum", "struct", "volatile")]
    base = {"unsigned", "signed", "long", "short", "int", "char"}
    if words and words[0] in base:
        kept = [w for w in words if w in base]
        return "q" if "long" in kept else "d"
    name = words[0] if words else ""
    short = name.split("::")[-1]
    if name in WIDE or short in WIDE:
        return "q"
    if name in FLOAT:
        return FLOAT[name]
    return STRUCT.get(name, STRUCT.get(short, "d"))


def prototypes(text: str, pattern: str) -> dict[str, str]:
    """Name to the ways its parameters are passed; of several declarations the last."""
    found = {}
    for match in re.finditer(pattern, text):
        name, start = match.group(1), match.end()
        depth, index = 1, start
        while depth and index < len(text):
            depth += text[index] == "("
            depth -= text[index] == ")"
            index += 1
        found[name] = " ".join(passing(p) for p in split_parameters(text[start : index - 1]))
    return found


def headers(cuda: Path) -> dict[str, str]:
    """Prototypes of the runtime and the driver under the names that the libraries export."""
    runtime = strip_comments((cuda / "cu13/include/cuda_runtime_api.h").read_text())
    result = prototypes(runtime, r"CUDARTAPI(?:_CDECL)?\s+(cuda\w+)\s*\(")
    driver = strip_comments((cuda / "cu13/include/cuda.h").read_text())
    current = driver[: driver.rindex("#if defined(__CUDA_API_VERSION_INTERNAL)\n")]
    alias = dict(re.findall(r"#\s*define\s+(cu[A-Z]\w+)\s+(?:__CUDA_API_PT[DS][SZ]\()?(cu\w+)\)?", driver))
    for name, parameters in prototypes(current, r"CUDAAPI\s+(cu[A-Z]\w+)\s*\(").items():
        result[alias.get(name, name)] = parameters
    return result


def compile_checks(cuda: Path, compiler: str) -> bool:
    """Compiles shim/abi/*.cpp, whose static assertions compare layouts."""
    good = True
    include = [f"-I{SHIM / 'include'}"] + [f"-I{cuda / part / 'include'}" for part in ("cu13", "cudnn", "nccl")]
    for source in sorted((SHIM / "abi").glob("*.cpp")):
        quiet = [f"-Wno-{kind}" for kind in ("invalid-offsetof", "deprecated-declarations", "enum-compare")]
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", *quiet, *include, source], check=False)
        print(f"{source.name}: {'as in the headers' if done.returncode == 0 else 'DIFFERS'}")
        good = good and done.returncode == 0
    return good


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", type=Path, required=True)
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    options = parser.parse_args()
    good = compile_checks(options.cuda, options.compiler)
    declared = headers(options.cuda)
    ours: dict[str, str] = {}
    for source in sorted((SHIM / "src" / "cuda").glob("*.cpp")):
        text = strip_comments(source.read_text())
        body = text[text.find('extern "C" {') :] if 'extern "C" {' in text else ""
        ours |= prototypes(body, r"(?m:^)(?:int|const char\*|unsigned|void\*\*|void|char) (cu\w+)\(")
    compared = 0
    for name in sorted(ours.keys() & declared.keys()):
        compared += 1
        if ours[name] != declared[name]:
            print(f"{name}: header passes [{declared[name]}], the shim takes [{ours[name]}]")
            good = False
    print(f"{compared} prototypes compared")
    return 0 if good and compared > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
