"""Query NVIDIA's management library by ctypes: no program to start, nothing to install.

Layouts and names are those of nvml.h: nvmlUtilization_t {uint gpu, memory}, nvmlMemory_t {ull total, free,
used}. If a driver refuses a call, that fact is unknown; it stops nothing.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional

LIBRARY = "libnvidia-ml.so.1"
_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE

THROTTLES = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal, by software",
    0x40: "thermal, by hardware",
    0x80: "power brake",
    0x100: "display clocks",
}
"""nvmlClocksThrottleReason…; 0x1 (idle) is not throttling."""


class _Utilisation(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Nvml:
    """The GPUs of this machine. Raises OSError if there is no library, or it does not start."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = ctypes.CDLL(library)
        if self._call("nvmlInit_v2") is None:
            raise OSError(f"{library} cannot be initialised")
        self._devices = self._found()
        self.names = [self._name(device) for device in self._devices]

    def read(self) -> List[Dict[str, Any]]:
        """Return for each GPU: utilisation and memory utilisation (0..1), memory in bytes, power and its
        limit in W, temperature in °C, and why its clocks are reduced.
        """
        return [self._of(device) for device in self._devices]

    def close(self) -> None:
        self._call("nvmlShutdown")

    def _found(self) -> List[ctypes.c_void_p]:
        count = ctypes.c_uint()
        if self._call("nvmlDeviceGetCount_v2", ctypes.byref(count)) is None:
            return []
        devices = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            if self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device)):
                devices.append(device)
        return devices

    def _name(self, device: ctypes.c_void_p) -> str:
        name = ctypes.create_string_buffer(_NAME_BYTES)
        told = self._call("nvmlDeviceGetName", device, name, ctypes.c_uint(_NAME_BYTES))
        return name.value.decode(errors="replace") if told else "GPU"

    def _of(self, device: ctypes.c_void_p) -> Dict[str, Any]:
        used, memory = _Utilisation(), _Memory()
        busy = self._call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(used))
        held = self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        return {
            "utilisation": used.gpu / 100 if busy else None,
            "memory_utilisation": used.memory / 100 if busy else None,
            "memory": memory.used if held else None,
            "memory_total": memory.total if held else None,
            "power": self._watts("nvmlDeviceGetPowerUsage", device),
            "power_limit": self._watts("nvmlDeviceGetEnforcedPowerLimit", device),
            "temperature": self._number("nvmlDeviceGetTemperature", device, ctypes.c_uint(0)),
            "throttled": self._throttled(device),
        }

    def _watts(self, function: str, device: ctypes.c_void_p) -> Optional[float]:
        milliwatts = self._number(function, device)
        return None if milliwatts is None else round(milliwatts / 1000, 1)

    def _number(self, function: str, *arguments: Any) -> Optional[int]:
        value = ctypes.c_uint()
        return value.value if self._call(function, *arguments, ctypes.byref(value)) else None

    def _throttled(self, device: ctypes.c_void_p) -> Optional[List[str]]:
        reasons = ctypes.c_ulonglong()
        if not self._call("nvmlDeviceGetCurrentClocksThrottleReasons", device, ctypes.byref(reasons)):
            return None
        return [name for bit, name in THROTTLES.items() if reasons.value & bit]

    def _call(self, name: str, *arguments: Any) -> Optional[bool]:
        """Return True for success, None for any other answer and for a function that this driver lacks."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            return None
        function.restype = ctypes.c_int
        return True if function(*arguments) == 0 else None
