"""Hosts on this computer that record commands, and whose connections fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.errors import HostError
from orchestrator.hosts.here import HereChannel, HereHost
from orchestrator.model import Completed


class Recording(HereHost):
    """This computer, which notes the commands and counts the bytes of the streams that it was sent."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.sent = 0

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        self.commands.append(tuple(argv))
        return super().run(argv, **options)

    def open(self, argv: Sequence[str]) -> HereChannel:
        self.commands.append(tuple(argv))
        channel = super().open(argv)
        write = channel.write

        def counted(data: bytes) -> None:
            self.sent += len(data)
            write(data)

        channel.write = counted  # type: ignore[method-assign]
        return channel


class Plain(HereHost):
    """This computer, with the search path of a fresh machine."""

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        return super().run(("env", "PATH=/usr/bin:/bin", *argv), **options)


class Spoiling(HereHost):
    """This computer behind a line that changes one byte in each large piece."""

    def open(self, argv: Sequence[str]) -> HereChannel:
        channel = super().open(argv)
        write = channel.write

        def spoilt(data: bytes) -> None:
            piece = bytearray(data)
            # Within the first file, past its tar header.
            if len(piece) > 5000:
                piece[5000] ^= 1
            write(bytes(piece))

        channel.write = spoilt  # type: ignore[method-assign]
        return channel


class Tearing(HereHost):
    """This computer, whose streams all tear half-way but the first ones; what arrived before stays."""

    def __init__(self, whole: int) -> None:
        self._whole = whole

    def open(self, argv: Sequence[str]) -> HereChannel:
        channel = super().open(argv)
        write = channel.write

        self._whole -= 1
        if self._whole >= 0:
            return channel

        def half(data: bytes) -> None:
            write(data[: len(data) // 2])
            channel.close()
            raise HostError("torn")

        channel.write = half  # type: ignore[method-assign]
        return channel


class Dying(Recording):
    """This computer, until contact is lost before its n-th command."""

    def __init__(self, alive: int) -> None:
        super().__init__()
        self._alive = alive

    def _step(self) -> None:
        if len(self.commands) >= self._alive:
            raise HostError("cut off")

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        self._step()
        return super().run(argv, **options)

    def open(self, argv: Sequence[str]) -> HereChannel:
        self._step()
        return super().open(argv)
