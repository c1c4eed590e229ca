"""Probes of NVIDIA GPUs by the driver's own library: utilisation, memory, power, temperature."""

import ctypes
from collections.abc import Callable
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

_NOT_SUPPORTED = 3
_SENSOR_GPU = 0
_NAME_BYTES = 96


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


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
        self._readers = [self._utilization, self._memory, self._power, self._temperature]
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

    def _power(self) -> dict[str, float | int]:
        found = ctypes.c_uint()
        return {"power_watts": found.value / 1000} if self._ask("nvmlDeviceGetPowerUsage", found) else {}

    def _temperature(self) -> dict[str, float | int]:
        found = ctypes.c_uint()
        ok = self._nvml.call("nvmlDeviceGetTemperature", self._device, ctypes.c_int(_SENSOR_GPU), ctypes.byref(found))
        return {"temperature_celsius": found.value} if ok else {}

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
