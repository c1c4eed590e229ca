"""The probe of AMD GPUs, on files as the kernel's documentation of amdgpu describes them; the hardware is not here."""

from pathlib import Path

import pytest

from stepscope.sdk.probes import amd

BUS = "devices/pci0000:00/0000:00:03.1"
CARD = {
    "vendor": "0x1002",
    "device": "0x74a1",
    "gpu_busy_percent": "87",
    "mem_info_vram_total": "206141652992",
    "mem_info_vram_used": "103070826496",
    "product_name": "AMD Instinct MI300X OAM",
    "hwmon/hwmon4/power1_input": "743000000",
    "hwmon/hwmon4/temp2_input": "71000",
    "hwmon/hwmon4/temp2_label": "junction",
    "hwmon/hwmon4/temp3_input": "58000",
    "hwmon/hwmon4/temp3_label": "mem",
    "hwmon/hwmon4/freq1_input": "2103000000",
}
OLDER = {
    "vendor": "0x1002",
    "device": "0x744c",
    "gpu_busy_percent": "0",
    "mem_info_vram_total": "21458059264",
    "mem_info_vram_used": "27856896",
    "hwmon/hwmon2/power1_average": "22000000",
    "hwmon/hwmon2/power1_input": "99000000",
    "hwmon/hwmon2/temp1_input": "41000",
    "hwmon/hwmon2/temp1_label": "edge",
}


def card(sys: Path, number: int, place: str, files: dict[str, str]) -> Path:
    """Make a card with the files of its device, as the kernel links them."""
    device = sys / BUS / place
    for name, text in files.items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(text + "\n")
    (drm := sys / "class" / "drm" / f"card{number}").mkdir(parents=True)
    (drm / "device").symlink_to(device)
    return device


def test_every_gpu_is_read_under_nvidias_names(tmp_path: Path) -> None:
    """They are numbered by their place on the bus; average power counts, and the hottest place of the chip."""
    card(tmp_path, 2, "0000:c1:00.0", CARD)
    card(tmp_path, 0, "0000:03:00.0", OLDER)
    card(tmp_path, 1, "0000:04:00.0", {"vendor": "0x1a03"})  # the display of the board
    older, newer = amd.open_gpus(tmp_path)
    assert older.read() == pytest.approx(
        {
            "gpu/0/memory_used_bytes": 27856896,
            "gpu/0/memory_limit_bytes": 21458059264,
            "gpu/0/memory_utilization": 27856896 / 21458059264,
            "gpu/0/utilization": 0.0,
            "gpu/0/power_watts": 22.0,
            "gpu/0/temperature_celsius": 41.0,
        }
    )
    reading = newer.read()
    assert reading["gpu/1/power_watts"] == 743.0
    assert reading["gpu/1/temperature_celsius"] == 71.0
    assert reading["gpu/1/clock_mhz"] == 2103.0
    assert reading["gpu/1/utilization"] == 0.87
    assert reading["gpu/1/memory_utilization"] == 0.5
    assert (older.detail, newer.detail) == ("AMD GPU 0x744c (0000:03:00.0)", "AMD Instinct MI300X OAM (0000:c1:00.0)")


def test_a_sensor_that_is_busy_or_gone_is_left_out(tmp_path: Path) -> None:
    """A value that is no number is none; a GPU whose memory cannot be read is gone, and its probe is off."""
    device = card(tmp_path, 0, "0000:03:00.0", {**OLDER, "gpu_busy_percent": "N/A"})
    (gpu,) = amd.open_gpus(tmp_path)
    (device / "hwmon/hwmon2/temp1_input").unlink()
    assert {key.rpartition("/")[2] for key in gpu.read()} == {
        "memory_used_bytes", "memory_limit_bytes", "memory_utilization", "power_watts"
    }  # fmt: skip
    (device / "mem_info_vram_used").unlink()
    with pytest.raises(OSError, match="mem_info_vram_used"):
        gpu.read()


def test_no_gpu_is_a_reason(tmp_path: Path) -> None:
    """Another maker's card is none of ours, nor is one without memory of its own."""
    card(tmp_path, 0, "0000:01:00.0", {"vendor": "0x10de", "mem_info_vram_total": "1"})
    card(tmp_path, 1, "0000:02:00.0", {"vendor": "0x1002"})
    with pytest.raises(OSError, match="no AMD GPU"):
        amd.open_gpus(tmp_path)
