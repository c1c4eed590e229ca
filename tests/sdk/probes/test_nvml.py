"""The GPU probe against the real driver where there is one, else the reason it gives."""

import ctypes

import pytest

from stepscope.sdk.probes import nvml


def driver_is_here() -> bool:
    """Tell whether the driver's library can be loaded and answers."""
    try:
        return bool(ctypes.CDLL(nvml.LIBRARY).nvmlInit_v2() == 0)
    except OSError:
        return False


needs_driver = pytest.mark.skipif(not driver_is_here(), reason="no NVIDIA driver on this machine")


@pytest.mark.gpu
@needs_driver
def test_reads_every_gpu() -> None:
    """Each GPU tells its memory and, where the hardware can, its load, power and temperature."""
    gpus = nvml.open_gpus()
    assert [gpu.name for gpu in gpus] == [f"gpu/{index}" for index in range(len(gpus))]
    for gpu in gpus:
        reading = gpu.read()
        assert gpu.detail
        assert all(key.startswith(f"{gpu.name}/") for key in reading)
        assert 0 < reading[f"{gpu.name}/memory_used_bytes"] <= reading[f"{gpu.name}/memory_limit_bytes"]
        assert 0 <= reading.get(f"{gpu.name}/utilization", 0) <= 1
        assert 0 < reading.get(f"{gpu.name}/power_watts", 1) < 3000
        assert 0 < reading.get(f"{gpu.name}/temperature_celsius", 1) < 130
        assert 0 < reading.get(f"{gpu.name}/clock_mhz", 1) < 10_000
        assert reading.get(f"{gpu.name}/thermal_slowdown", 0) in (0, 1)
        assert reading.get(f"{gpu.name}/ecc_uncorrected", 0) >= 0
        gpu.close()


@pytest.mark.gpu
@needs_driver
def test_a_gpu_that_is_not_there_is_an_error_in_words() -> None:
    """The driver's own words tell what is wrong."""
    driver = nvml.Nvml()
    with pytest.raises(OSError, match=r"nvmlDeviceGetHandleByIndex_v2: .*[Ii]nvalid"):
        nvml.Gpu(driver, 9999)


@pytest.mark.skipif(driver_is_here(), reason="this machine has an NVIDIA driver")
def test_no_driver_is_a_clear_reason() -> None:
    """Without a driver the reason names the library and the likely cause."""
    with pytest.raises(OSError, match=r"libnvidia-ml\.so\.1.*NVIDIA driver"):
        nvml.open_gpus()


def test_a_library_that_is_not_the_drivers_is_refused() -> None:
    """A library of another kind gives no GPUs and no crash."""
    with pytest.raises(OSError, match=r"nvmlErrorString; is the NVIDIA driver installed"):
        nvml.open_gpus("libc.so.6")
