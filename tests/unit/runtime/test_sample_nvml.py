"""NVIDIA's library, spoken to by its own calling convention: a small one in C stands in for the driver's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.runtime.sampler.gpu import GpuMeter
from orchestrator.runtime.sampler.nvml import Nvml

LIBRARY = r"""
#include <string.h>
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;
static int devices[2] = {0, 1};
int nvmlInit_v2(void) { return STARTS; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **device) {
    if (at > 1) return 4;                    /* a GPU that this user may not see */
    *device = &devices[at];
    return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    strncpy(name, *(int *)device ? "NVIDIA L4" : "Tesla T4", length);
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, utilization *used) {
    used->gpu = 73; used->memory = 20;
    return *(int *)device ? 3 : 0;           /* not supported by the second */
}
int nvmlDeviceGetMemoryInfo(void *device, memory *held) {
    held->total = 16106127360ULL; held->used = 5368709120ULL; held->free = held->total - held->used;
    return 0;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 65432; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { *milliwatts = 70000; return 0; }
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *degrees) {
    *degrees = sensor ? 0 : 61;
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    *reasons = *(int *)device ? 0x1 : 0x40 | 0x4;
    return 0;
}
"""


def built(folder: Path, starts: int = 0) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(LIBRARY)
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-DSTARTS={starts}", "-o", library, source], check=True, timeout=120
    )
    return str(library)


def test_every_gpu_that_can_be_seen_is_told_of(tmp_path: Path) -> None:
    meter = GpuMeter(built(tmp_path))
    try:
        found = meter.read()
        assert meter.names == ["Tesla T4", "NVIDIA L4"] and found and len(found) == 2
        assert found[0] == {
            "utilisation": 0.73, "memory_utilisation": 0.2, "memory": 5 << 30, "memory_total": 15 << 30,
            "power": 65.4, "power_limit": 70.0, "temperature": 61,
            "throttled": ["power cap", "thermal, by hardware"],
        }  # fmt: skip
        assert (found[1]["utilisation"], found[1]["memory"], found[1]["throttled"]) == (None, 5 << 30, [])
        assert meter.pids == set()  # no program runs beside it
    finally:
        meter.close()


def test_a_driver_that_does_not_start_is_no_gpu(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot be initialised"):
        Nvml(built(tmp_path, starts=9))


def test_no_library_is_no_gpu() -> None:
    with pytest.raises(OSError):
        Nvml("libno-such-nvml.so.1")
