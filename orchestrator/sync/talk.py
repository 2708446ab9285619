"""A conversation with the runtime on the other side. Its refusals become errors with a message for people."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Any, TypeVar

from orchestrator.errors import DiskFull, HostError, OrchError, SyncError
from orchestrator.model import Agent, Channel, Host
from orchestrator.model.answers import LONG, Count, Like, Malformed, Most, malformed, parsed, value
from orchestrator.model.plain import last_words, plain
from orchestrator.runtime import space
from orchestrator.runtime.transfer import frames
from orchestrator.sync.scan import shown

T = TypeVar("T")

_FULL_ENOUGH = 1 << 18
_READ_AHEAD = 1 << 20
_SILENCE = 1800.0
"""Seconds without a byte after which the other side counts as stuck; hashing a large tree takes longest."""
_LAST_WORDS_WITHIN = 30.0
_LENGTH = struct.Struct(">I")


class Changed(SyncError):
    """Files were written between being listed and being sent."""


class CannotStream(SyncError):
    """The other side cannot show a tree before all of it has arrived. `why`: the reason, as a phrase."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} cannot show data while they are downloaded: {why}.")
        self.why = why


_OBJECT = "object_"


class ObjectRefused(SyncError):
    """One object of a bucket did not arrive as it was listed. `fault`: changed, missing, denied, corrupt,
    passing, refused or malformed, as in runtime.http.HttpError.
    """

    def __init__(self, fault: str, key: str, message: str, next_command: str | None = None) -> None:
        super().__init__(message, next_command=next_command)
        self.fault, self.key = fault, key


class _Incoming(io.RawIOBase):
    """The bytes that arrive on a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._channel.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class Talk:
    """Messages to and from one verb of the runtime, as frames over its channel. Writes are buffered until
    there are many, or until `flush`.
    """

    def __init__(self, host: Host, agent: Agent, verb: str, *arguments: str) -> None:
        self._host = host
        self._verb = verb
        self._channel = host.open(agent.argv(verb, *arguments))
        self._channel.patience(_SILENCE)
        self._waiting = bytearray()
        self.read = io.BufferedReader(_Incoming(self._channel), _READ_AHEAD).read

    def write(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) >= _FULL_ENOUGH:
            self.flush()

    def flush(self) -> None:
        data, self._waiting = self._waiting, bytearray()
        self._channel.write(bytes(data))

    def say(self, message: Any) -> None:
        frames.send(self.write, message)
        self.flush()

    def hear(self, shape: type[T]) -> T:
        """Return the next message, of type `shape`.

        Raise SyncError if it is a refusal or the other side broke off, MalformedAnswer if it is not a
        `shape`.
        """
        try:
            message = parsed(self._message(), most=LONG)
            refused = isinstance(message, dict) and "error" in message
            answer = value(_Refusal, message) if refused else value(shape, message)
        except frames.Broken as error:
            raise self.broken() from error
        except Malformed as error:
            raise self.malformed(str(error)) from None
        if isinstance(answer, _Refusal):
            raise _refusal(self._host.name, answer)
        return answer

    def _message(self) -> bytes:
        (length,) = _LENGTH.unpack(frames.exactly(self.read, _LENGTH.size))
        if length > LONG:
            raise Malformed(f"a message of {length:,} bytes")
        return frames.exactly(self.read, length)

    def malformed(self, why: str) -> HostError:
        """Return the error for a message that orch's runtime never sends."""
        return malformed(self._host.name, self._verb, why)

    def broken(self) -> OrchError:
        """Return the error for a conversation that ended early, with the last output of the other side.

        Raise HostError if contact was lost, or if the command on the other side does not end.
        """
        self._channel.close_stdin()
        done = self._channel.wait(_LAST_WORDS_WITHIN)
        said = last_words(done.stderr) or "it said nothing"
        if done.returncode == space.STATUS:
            return DiskFull(f"The disk of {self._host.name} is full: {said}")
        return SyncError(
            f"`{self._verb}` on {self._host.name} ended with {done.returncode} in the middle of a transfer: "
            f"{said}"
        )

    def __enter__(self) -> Talk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()


@dataclass(frozen=True)
class _Refusal:
    """Why the other side does not continue. `error` determines which of the other fields are set; sizes
    are bytes.
    """

    error: Annotated[str, Like("[a-z_]{1,40}")]
    text: Annotated[str, Most(10_000)] = ""
    needed: Count = 0
    free: Count = 0
    paths: Annotated[tuple[str, ...], Most(1_000_000)] = ()
    path: str = ""


def _refusal(name: str, said: _Refusal) -> OrchError:
    if said.error == "disk_full":
        return SyncError(
            f"The disk of {name} is too small: {_bytes(said.needed)} are needed, "
            f"{_bytes(said.free)} are free. Existing files there are unchanged.",
            next_command="ask for a larger resources.disk in the profile",
        )
    if said.error == "changed":
        return Changed(
            f"{shown(said.paths)} changed while being sent. "
            f"Existing files on {name} are unchanged. Wait for the program that writes them, or name "
            "them in .orchignore; then repeat: other files are not sent again."
        )
    if said.error == "differs":
        return SyncError(
            f"{shown([said.path])} on {name} differs from what was sent. Another program writes there."
        )
    if said.error == "no_space":
        return DiskFull(f"The disk of {name} is full: {plain(said.text)}.")
    if said.error == "no_mount":
        return CannotStream(name, plain(said.text))
    if said.error.startswith(_OBJECT):
        return _object_refused(name, said)
    return SyncError(f"{name} refused the files: {plain(said.text) or said.error}")


_OBJECT_SENTENCES = {
    "changed": "changed in its bucket during the download",
    "missing": "is no longer in its bucket",
    "denied": "cannot be read with the links that were signed here",
    "corrupt": "arrived damaged every time: its bytes do not match the bucket's checksum",
    "passing": "did not come",
}
_AS_BEFORE = ("refused", "malformed")


def _object_refused(name: str, said: _Refusal) -> ObjectRefused:
    fault = said.error.removeprefix(_OBJECT)
    then = "once that is corrected, the same command continues" if fault in _AS_BEFORE else ""
    sentence = _OBJECT_SENTENCES.get(fault, "was refused")
    return ObjectRefused(
        fault,
        said.path,
        f"{shown([said.path])} {sentence}: {plain(said.text)} Files that {name} already has are kept; "
        f"{then or 'repeat the command to continue'}.",
    )


def _bytes(count: int) -> str:
    return f"{count:,} bytes"
