"""NVML through nvidia-ml-py (whose structures are the check of ours) and through torch."""

from __future__ import annotations

import ctypes

from shim_support import need, run_snippet

DEVICE = """
import pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
"""


def test_devices_are_found_in_every_way(tmp_path):
    need("pynvml")
    run_snippet(
        tmp_path,
        DEVICE
        + """
assert n.nvmlDeviceGetCount() == 1
assert n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h))) == 0
pci = n.nvmlDeviceGetPciInfo(h)
assert n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(pci.busId)) == 0
assert int(pci.busId.split(":")[1], 16) == pci.bus
for bad in (lambda: n.nvmlDeviceGetHandleByIndex(1), lambda: n.nvmlDeviceGetHandleByUUID("GPU-none")):
    try:
        bad()
    except n.NVMLError:
        continue
    raise SystemExit("a device that does not exist was found")
""",
    )


def test_answers_come_from_the_profile(tmp_path):
    need("pynvml")
    run_snippet(
        tmp_path,
        DEVICE
        + """
assert n.nvmlDeviceGetName(h) == "NVIDIA H100 80GB HBM3"
assert n.nvmlDeviceGetCudaComputeCapability(h) == (9, 0)
assert n.nvmlDeviceGetArchitecture(h) == n.NVML_DEVICE_ARCH_HOPPER
assert n.nvmlDeviceGetEnforcedPowerLimit(h) == 700_000
assert n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM) == 1980
assert n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_MEM) == 2619
links = n.nvmlDeviceGetFieldValues(h, [n.NVML_FI_DEV_NVLINK_LINK_COUNT])[0]
assert links.nvmlReturn == 0 and links.value.uiVal == 18
assert n.nvmlDeviceGetNvLinkRemoteDeviceType(h, 17) == n.NVML_NVLINK_DEVICE_TYPE_SWITCH
assert n.nvmlDeviceGetMigMode(h) == [0, 0]
fabric = n.c_nvmlGpuFabricInfo_v2_t()
n.nvmlDeviceGetGpuFabricInfoV(h, n.byref(fabric))
assert bytes(fabric.clusterUuid) == bytes(16)
""",
    )


def test_memory_follows_allocations(tmp_path):
    need("pynvml", "torch")
    run_snippet(
        tmp_path,
        DEVICE
        + """
import os
import torch
before = n.nvmlDeviceGetMemoryInfo(h)
assert before.used == 0 and before.free == before.total
assert n.nvmlDeviceGetComputeRunningProcesses(h) == []
block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
plain, second = n.nvmlDeviceGetMemoryInfo(h), n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)
free, total = torch.cuda.mem_get_info()
assert (plain.free, plain.total) == (free, total) == (second.free, second.total)
assert plain.used > 1 << 30
(process,) = n.nvmlDeviceGetComputeRunningProcesses(h)
assert process.pid == os.getpid() and process.usedGpuMemory == plain.used
""",
    )


def test_torch_asks_nvml(tmp_path):
    need("pynvml", "torch")
    run_snippet(
        tmp_path,
        """
import torch
assert torch.cuda.is_available() and torch.cuda.device_count() == 1
torch.zeros(1, device="cuda")
assert torch.cuda.utilization() == 0
assert torch.cuda.power_draw() == 700_000
assert torch.cuda.clock_rate() == 1980
assert torch.cuda.temperature() == 50
assert "process" in torch.cuda.list_gpu_processes()
""",
        PYTORCH_NVML_BASED_CUDA_CHECK="1",
    )


def test_out_of_memory_is_torchs_own_error(tmp_path):
    need("torch")
    run_snippet(
        tmp_path,
        """
import torch
try:
    torch.empty(200 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    text = str(error)
else:
    raise SystemExit("200 GiB were given by a GPU of 79 GiB")
assert "Tried to allocate 200.00 GiB" in text and "79.1" in text, text
kept = torch.empty(70 << 30, dtype=torch.uint8, device="cuda")
del kept
torch.cuda.empty_cache()
torch.empty(70 << 30, dtype=torch.uint8, device="cuda")
""",
    )


def test_structures_agree_with_nvidia_ml_py():
    """The layouts in abi_libs.hpp, by hand: name, size."""
    need("pynvml")
    import pynvml

    sizes = {
        pynvml.c_nvmlMemory_t: 24,
        pynvml.c_nvmlMemory_v2_t: 40,
        pynvml.c_nvmlProcessInfo_t: 24,
        pynvml.nvmlPciInfo_t: 68,
        pynvml.c_nvmlUtilization_t: 8,
        pynvml.c_nvmlBAR1Memory_t: 24,
        pynvml.c_nvmlGpuFabricInfo_v2_t: 36,
        pynvml.c_nvmlTemperature_v1_t: 12,
        pynvml.c_nvmlFieldValue_t: 40,
    }
    for structure, size in sizes.items():
        assert ctypes.sizeof(structure) == size, structure
