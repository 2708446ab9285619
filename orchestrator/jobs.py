"""Start, watch and end runs by a Host, wherever it leads. All that lasts is in the run's own folder there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.errors import HostError, OrchError, RunFailed, UsageError
from orchestrator.model import Agent, Completed, Entry, Exit, Host, Job, RunState

_CHUNK = 1 << 16
_REFUSED = 3
_TIMEOUT = 900.0
"""Seconds for a verb to answer; laying out a large tree is the slowest."""


class FollowInterrupted(HostError):
    """Contact was lost while a run's output was read; the run goes on.

    Every byte before `offset` was passed on, and none after it: follow again from there.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, exists="The run itself goes on.", next_command="orch logs -f")
        self.offset = offset


def run_dir(agent: Agent, run_id: str) -> str:
    """The run's folder on that side."""
    return f"{agent.base}/runs/{run_id}"


def start(host: Host, agent: Agent, job: Job, outputs: Sequence[str] = ()) -> RunState:
    """Begin the job, detached, or find it where it began already: a run id is run once, whatever happens.

    `outputs` are globs of what it leaves (empty: all that it creates or changes). Raises UsageError where
    the id belongs to another job or the trees cannot be laid out, HostError where contact was lost.
    """
    spec = {**asdict(job), "outputs": list(outputs)}
    return _state(_ask(host, agent, "start", stdin=json.dumps(spec).encode()))


def state(host: Host, agent: Agent, run_id: str) -> RunState:
    """How the run stands; "absent" where there is none."""
    return _state(_ask(host, agent, "state", run_id))


def follow(
    host: Host,
    agent: Agent,
    run_id: str,
    offset: int,
    write: Callable[[bytes], None],
    *,
    live: bool = True,
) -> int:
    """Pass on the run's output from byte `offset` until it has ended; the new offset.

    Without `live`, only what there is now. Raises FollowInterrupted, a HostError, where contact was lost,
    and RunFailed where the output is shorter than `offset`.
    """
    arguments = (agent.base, run_id, str(offset), *(("--follow",) if live else ()))
    try:
        with host.open(agent.argv("tail", *arguments)) as channel:
            channel.close_stdin()
            while data := channel.read(_CHUNK):
                write(data)
                offset += len(data)
            done = channel.wait()
    except FollowInterrupted:
        raise
    except HostError as lost:
        raise FollowInterrupted(lost.message, offset) from lost
    if done.returncode == _REFUSED:
        raise _refusal(done)
    if done.returncode != 0:
        raise FollowInterrupted(f"{host.name} stopped sending the output of {run_id}.", offset)
    return offset


def cancel(host: Host, agent: Agent, run_id: str, grace: float = 10.0) -> RunState:
    """End the run: asked first, after `grace` seconds made to. Its state then. Ended already is success."""
    return _state(_ask(host, agent, "cancel", run_id, "--grace", str(grace)))


def outputs(host: Host, agent: Agent, run_id: str) -> tuple[Entry, ...]:
    """What an ended run created or changed in `<run_dir>/work`, paths relative to that folder."""
    return tuple(Entry(**entry) for entry in _ask(host, agent, "outputs", run_id)["entries"])


def _ask(host: Host, agent: Agent, verb: str, *arguments: str, stdin: bytes | None = None) -> dict[str, Any]:
    """One verb's answer."""
    done = host.run(agent.argv(verb, agent.base, *arguments), stdin=stdin, timeout=_TIMEOUT)
    if done.returncode != 0:
        raise _refusal(done)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise HostError(f"{host.name} gave no answer to {verb}: {_words(done.stdout)}")
    return answer


def _refusal(done: Completed) -> OrchError:
    """What a verb says on standard error when it cannot do what it was asked."""
    try:
        said = json.loads(done.stderr)
        kind, message = said["kind"], said["error"]
    except (ValueError, KeyError, TypeError):
        return HostError(f"The runtime there ended with status {done.returncode}: {_words(done.stderr)}")
    return UsageError(message) if kind in ("invalid", "conflict", "stage", "absent") else RunFailed(message)


def _words(text: bytes) -> str:
    return " ".join(text.decode(errors="replace").split())[-500:] or "it said nothing"


def _state(answer: dict[str, Any]) -> RunState:
    ended = answer["exit"]
    return RunState(**{**answer, "exit": Exit(**ended) if ended else None})
