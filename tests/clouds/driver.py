"""The part of an image with NVIDIA's driver that can be had without a GPU: the program that lists the GPUs.

It answers `nvidia-smi -L` for the GPUs of the instance type, and all else as where the driver finds
none: nothing computes there, and nothing is measured.
"""

from __future__ import annotations

PATH = "/usr/bin/nvidia-smi"


def program(gpu: str, count: int) -> str:
    """The program's text, for `count` GPUs called `gpu`."""
    lines = "".join(
        f"    echo 'GPU {number}: {gpu} (UUID: GPU-00000000-0000-0000-0000-{number:012d})'\n"
        for number in range(count)
    )
    return (
        "#!/bin/sh\n"
        f'if [ "$*" = -L ]; then\n{lines}    exit 0\nfi\n'
        "echo 'No devices were found' >&2\n"
        "exit 6\n"
    )
