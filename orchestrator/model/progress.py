"""Report progress to the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

Output = Callable[[bytes], None]
"""Receives what a job prints, in blocks of any length."""


@runtime_checkable
class Progress(Protocol):
    """Where long operations report what they do. For display only: nothing is decided by it.

    With a method `notice(text)` as well, it gets by that what the user has to know in any case: what is left,
    what costs money, what was not done.
    """

    def say(self, text: str) -> None:
        """Report one step of the work, or something that the user has to know."""

    def transfer(self, label: str, done: int, total: int) -> None:
        """Report `done` of `total` bytes of `label`. May be called at any rate; the last call has done ==
        total.

        A `total` of 0: the operation has no size. A `label` of "" ends such an operation.
        """


@dataclass(frozen=True)
class Pace:
    """How a run is doing. None: not known.

    `seconds` since it started, `left` to its end, an estimate; `steps` of training so far, `all_steps` of the
    whole training. `epoch`, of `epochs`, and `metrics`: as the run printed them last. Over the last seconds:
    `steps_per_s`, by the median time of a step; `input_wait`, the share (0..1) of a step spent waiting for
    input; `busy`, cores in use, of `cores`; `gpu`, the mean utilisation (0..1). `memory` in bytes, now.
    `price` of the machine in $/h.
    """

    seconds: float | None = None
    steps: int | None = None
    all_steps: int | None = None
    left: float | None = None
    epoch: int | None = None
    epochs: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps_per_s: float | None = None
    input_wait: float | None = None
    busy: float | None = None
    cores: float | None = None
    gpu: float | None = None
    memory: int | None = None
    price: float | None = None


@runtime_checkable
class Noticing(Progress, Protocol):
    """Progress that tells notices from the rest, to show them also where progress is not wanted."""

    def notice(self, text: str) -> None:
        """Report what the user has to know in any case. See the function `notice`."""


@runtime_checkable
class Watching(Progress, Protocol):
    """Progress that also follows how a run is doing. Each call costs a question to its machine."""

    every_s: float
    """Seconds between two calls."""

    def pace(self, pace: Pace | None) -> None:
        """Called while a run goes on, from another thread; with None when it is no longer followed."""


class Silent:
    """Progress that is shown to nobody."""

    def say(self, text: str) -> None: ...
    def transfer(self, label: str, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class _Called:
    """Progress that calls a function with each line."""

    line: Callable[[str], object]

    def say(self, text: str) -> None:
        self.line(text)

    def transfer(self, label: str, done: int, total: int) -> None: ...


def as_progress(given: Progress | Callable[[str], None] | None) -> Progress:
    """Return the Progress of a `progress` argument: itself, a function that gets each line, or None for none.

    Raise TypeError for anything else, before anything is done.
    """
    if given is None:
        return Silent()
    if isinstance(given, Progress):
        return given
    if callable(given):
        return _Called(given)
    raise TypeError(f"progress: expected a function of one text, or say() and transfer(), not {given!r}")


def notice(progress: Progress, text: str) -> None:
    """Report what is left or lost, what costs money, what was not done, or what can change a result.

    Progress that does not tell notices from the rest gets it by `say`.
    """
    if isinstance(progress, Noticing):
        progress.notice(text)
    else:
        progress.say(text)


@contextmanager
def doing(progress: Progress, what: str) -> Iterator[None]:
    """Show on a terminal what the block does, while it runs. Elsewhere, nothing is printed."""
    progress.transfer(what, 0, 0)
    try:
        yield
    finally:
        progress.transfer("", 0, 0)


@dataclass(frozen=True)
class Labelled:
    """Progress whose lines begin with the machine's name."""

    name: str
    tell: Progress

    def say(self, text: str) -> None:
        self.tell.say(f"{self.name}: {text}")

    def notice(self, text: str) -> None:
        notice(self.tell, f"{self.name}: {text}")

    def transfer(self, label: str, done: int, total: int) -> None:
        if total:
            self.tell.transfer(f"{self.name}: {label}", done, total)
