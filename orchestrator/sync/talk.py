"""One conversation with the runtime on the other side, and its refusals as errors for people."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from orchestrator.errors import SyncError
from orchestrator.model import Agent, Host
from orchestrator.runtime import frames
from orchestrator.sync.scan import shown

_FULL_ENOUGH = 1 << 18


class Talk:
    """Frames both ways over the channel of one verb. Writes wait until there are many, or for `flush`."""

    def __init__(self, host: Host, agent: Agent, verb: str, *arguments: str) -> None:
        self._host = host
        self._verb = verb
        self._channel = host.open(agent.argv(verb, *arguments))
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) >= _FULL_ENOUGH:
            self.flush()

    def flush(self) -> None:
        data, self._waiting = self._waiting, bytearray()
        self._channel.write(bytes(data))

    def read(self, size: int) -> bytes:
        return self._channel.read(size)

    def say(self, message: Any) -> None:
        frames.send(self.write, message)
        self.flush()

    def hear(self) -> Any:
        """The next message. SyncError where it is a refusal, or where the other side broke off."""
        try:
            message = frames.receive(self.read)
        except frames.Broken as error:
            raise self.broken() from error
        if isinstance(message, dict) and "error" in message:
            raise _refusal(self._host.name, message)
        return message

    def broken(self) -> SyncError:
        """The error for a conversation that ended early, with what the other side last said."""
        self._channel.close_stdin()
        done = self._channel.wait(30)
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
        return SyncError(
            f"`{self._verb}` on {self._host.name} ended with {done.returncode} in the middle of a transfer: "
            f"{' / '.join(said) or 'it said nothing'}"
        )

    def __enter__(self) -> Talk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()


def _refusal(name: str, message: Mapping[str, Any]) -> SyncError:
    kind = message["error"]
    if kind == "disk_full":
        return SyncError(
            f"The disk of {name} is too small: {_bytes(message['needed'])} are needed, "
            f"{_bytes(message['free'])} are free. What lay there before was left as it was.",
            next_command="ask for a larger resources.disk in the profile",
        )
    if kind == "changed":
        return SyncError(
            f"{shown(message['paths'])} changed while being sent. "
            f"What lay on {name} before was left as it was. Wait for what writes there, or name it in "
            ".orchignore; then repeat: the rest is not sent again."
        )
    if kind == "differs":
        return SyncError(
            f"{shown([message['path']])} on {name} is not what was sent. Something writes there."
        )
    return SyncError(f"{name} refused the files: {message.get('text', kind)}")


def _bytes(count: int) -> str:
    return f"{count:,} bytes"
