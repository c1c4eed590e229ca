"""Probes of NVIDIA GPUs by the driver's own library: utilisation, memory, power, energy, temperature, clock, faults."""

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

_NOT_SUPPORTED = 3
_SENSOR_GPU = 0
_NAME_BYTES = 96
_CLOCK_SM = 1
_THERMAL, _POWER_BRAKE = 0x20 | 0x40, 0x80
"""Reasons for a lower clock: heat, in software or hardware, and the power supply. Others are normal under load."""
_UNCORRECTED, _SINCE_RESET = 1, 0
_NUMBERS: dict[str, tuple[Any, ...]] = {
    "power_watts": ("nvmlDeviceGetPowerUsage", ctypes.c_uint, 1000),
    "energy_joules": ("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong, 1000),
    "temperature_celsius": ("nvmlDeviceGetTemperature", ctypes.c_uint, 1, _SENSOR_GPU),
    "clock_mhz": ("nvmlDeviceGetClockInfo", ctypes.c_uint, 1, _CLOCK_SM),
    "ecc_uncorrected": ("nvmlDeviceGetTotalEccErrors", ctypes.c_ulonglong, 1, _UNCORRECTED, _SINCE_RESET),
}
"""The function of each number, its type, the driver's units in one of ours, and what is asked for.

The energy is since the driver was loaded; GPUs before Volta do not count it.
"""
_MAX_PROCESSES = 128
"""The most processes on a GPU that are looked at."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """The driver's library. OSError, with the driver's message, when a call fails.

    Opening and closing are counted by the driver: each `open` needs its own `close`.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
            self._library.nvmlErrorString.restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            raise OSError(f"{error}; is the NVIDIA driver installed?") from None

    def open(self) -> None:
        """Connect to the driver."""
        self.call("nvmlInit_v2")

    def close(self) -> None:
        """Disconnect from the driver."""
        self.call("nvmlShutdown")

    def count(self) -> int:
        """The number of GPUs."""
        number = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(number))
        return number.value

    def device(self, index: int) -> ctypes.c_void_p:
        """The driver's handle of a GPU."""
        pointer = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(pointer))
        return pointer

    def call(self, function: str, *args: Any) -> bool:
        """Call a function; False when this GPU or driver does not support it."""
        try:
            code = getattr(self._library, function)(*args)
        except AttributeError:
            return False
        if code not in (0, _NOT_SUPPORTED):
            raise OSError(f"{function}: {self._library.nvmlErrorString(code).decode(errors='replace')}")
        return bool(code == 0)


class Gpu:
    """One GPU; unsupported values are left out of its readings."""

    def __init__(self, nvml: Nvml, index: int) -> None:
        self.name = f"gpu/{index}"
        self._nvml = nvml
        self._readers: list[Callable[[], dict[str, float | int]]]
        self._readers = [self._utilization, self._memory, self._numbers, self._slowdown, self._rows]
        nvml.open()
        try:
            self._device = nvml.device(index)
            model = ctypes.create_string_buffer(_NAME_BYTES)
            nvml.call("nvmlDeviceGetName", self._device, model, ctypes.c_uint(_NAME_BYTES))
        except OSError:
            nvml.close()
            raise
        self.detail = model.value.decode(errors="replace")

    def read(self) -> dict[str, float | int]:
        """Read the values of this GPU."""
        return {f"{self.name}/{key}": value for reader in self._readers for key, value in reader().items()}

    def processes(self) -> list[int]:
        """The processes that compute on this GPU, as the driver numbers them; none if it does not say."""
        count, found = ctypes.c_uint(_MAX_PROCESSES), (_Process * _MAX_PROCESSES)()
        try:
            known = self._nvml.call(
                "nvmlDeviceGetComputeRunningProcesses_v3", self._device, ctypes.byref(count), ctypes.byref(found)
            )
        except OSError:
            return []
        return [each.pid for each in found[: count.value]] if known else []

    def close(self) -> None:
        """Disconnect from the driver."""
        self._nvml.close()

    def _utilization(self) -> dict[str, float | int]:
        found = _Utilization()
        if not self._ask("nvmlDeviceGetUtilizationRates", found):
            return {}
        return {"utilization": found.gpu / 100}

    def _memory(self) -> dict[str, float | int]:
        found = _Memory()
        if not self._ask("nvmlDeviceGetMemoryInfo", found) or not found.total:
            return {}
        return {
            "memory_used_bytes": found.used,
            "memory_limit_bytes": found.total,
            "memory_utilization": found.used / found.total,
        }

    def _numbers(self) -> dict[str, float | int]:
        """The values that are one number each; a GPU may lack any of them."""
        found = {name: self._number(*call) for name, call in _NUMBERS.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _number(self, function: str, kind: Any, per_unit: int, *which: int) -> float | int | None:
        found = kind()
        with contextlib.suppress(OSError):
            if self._nvml.call(function, self._device, *map(ctypes.c_int, which), ctypes.byref(found)):
                return found.value / per_unit if per_unit > 1 else int(found.value)
        return None

    def _slowdown(self) -> dict[str, float | int]:
        found = ctypes.c_ulonglong()
        with contextlib.suppress(OSError):
            if self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", found):
                heat, power = bool(found.value & _THERMAL), bool(found.value & _POWER_BRAKE)
                return {"thermal_slowdown": int(heat), "power_brake": int(power)}
        return {}

    def _rows(self) -> dict[str, float | int]:
        counts = [ctypes.c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed
        with contextlib.suppress(OSError):
            if self._nvml.call("nvmlDeviceGetRemappedRows", self._device, *map(ctypes.byref, counts)):
                return {"rows_remap_pending": counts[2].value, "rows_remap_failed": counts[3].value}
        return {}

    def _ask(self, function: str, found: Any) -> bool:
        return self._nvml.call(function, self._device, ctypes.byref(found))


def open_gpus(library: str = LIBRARY) -> list[Gpu]:
    """Open a probe for each GPU; OSError, with the reason, when there is none."""
    nvml = Nvml(library)
    nvml.open()
    try:
        gpus = [Gpu(nvml, index) for index in range(nvml.count())]
    finally:
        nvml.close()
    if not gpus:
        raise OSError("the NVIDIA driver shows no GPU")
    return gpus


def uuids(library: str = LIBRARY) -> list[str]:
    """The ids of the GPUs, in the driver's order; OSError, with the reason, when there is no driver."""
    nvml = Nvml(library)
    nvml.open()
    try:
        found = []
        for index in range(nvml.count()):
            text = ctypes.create_string_buffer(_NAME_BYTES)
            nvml.call("nvmlDeviceGetUUID", nvml.device(index), text, ctypes.c_uint(_NAME_BYTES))
            found.append(text.value.decode(errors="replace"))
        return found
    finally:
        nvml.close()
