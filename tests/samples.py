"""Devices that several tests measure on, on paper."""

from attnlab.device import Device

H200 = Device(kind="cuda", name="NVIDIA H200", uuid="GPU-1", total_bytes=140 << 30, free_bytes=139 << 30)
CPU = Device(kind="cpu", name="A CPU", uuid="host", total_bytes=8 << 30, free_bytes=6 << 30)
