"""Start, watch and end runs by a Host, wherever it leads. All that lasts is in the run's own folder there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, TypeVar

from orchestrator.errors import Busy, HostError, MalformedAnswer, OrchError, RunFailed, UsageError
from orchestrator.model import Agent, Completed, Entry, Host, Job, Room, RunState, TreeLink
from orchestrator.model.answers import LONG, SHORT, Between, Like, Malformed, Most, decoded, malformed
from orchestrator.model.checkpoints import Snapshots
from orchestrator.model.plain import last_words, plain
from orchestrator.model.stores import Grant

T = TypeVar("T")

_CHUNK = 1 << 16
_REFUSED = 3
_TIMEOUT = 900.0
"""Seconds for a verb to answer; laying out a large tree is the slowest."""

MOST_RUNS = 10_000
"""Runs of one machine that wait for somebody, at most; names of others are passed over."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REASON = re.compile(r"[a-z_]{1,40}")

_WAITING = r"""
for run in "$1"/runs/*; do
    case "${run##*/}" in *[!A-Za-z0-9._-]*) continue ;; esac
    [ -f "$run/started.json" ] && [ -f "$run/spec.json" ] && [ ! -e "$run/collected" ] || continue
    head -c 4194304 "$run/spec.json" | grep -qF '"awaited": true' || continue
    reason=
    [ -f "$run/exit.json" ] && reason=$(head -c 65536 "$run/exit.json" | tr -d '\n' |
        sed -n 's/.*"reason": "\([a-z_]*\)".*/\1/p')
    printf '%s %s\n' "${run##*/}" "$reason"
done
[ ! -e "$1/runs" ] || [ -r "$1/runs" ] && echo .
"""
"""In shell, as it must serve with every version of the runtime there, and with none."""

_GROWN = r"""
[ -f "$1" ] || exit 0
stat -c %s "$1"
tail -c "+$2" "$1" | head -c "$3"
"""

MOST_ENTRIES = 1_000_000
"""Files, folders and links of one run, at most."""


class FollowInterrupted(HostError):
    """Contact was lost while a run's output was read; the run goes on.

    Every byte before `offset` was passed on, and none after it: follow again from there.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, exists="The run itself goes on.", next_command="orch logs -f")
        self.offset = offset


class PathTaken(Busy):
    """The data of an active run are at a path that this job needs. `run_id`: that run of the user."""

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message, next_command=f"orch logs -f {run_id}    # then the same command again")
        self.run_id = run_id


class OutputShrank(MalformedAnswer):
    """A run's output on the machine is shorter than what was read of it before."""


def run_dir(agent: Agent, run_id: str) -> str:
    """The run's folder on that side."""
    return f"{agent.base}/runs/{run_id}"


def start(
    host: Host,
    agent: Agent,
    job: Job,
    outputs: Sequence[str] = (),
    *,
    awaited: bool = False,
    checkpoints: Sequence[str] = (),
    restored: TreeLink | None = None,
    grant: Grant | None = None,
) -> RunState:
    """Begin the job, detached, or find it where it began already: a run id is run once, whatever happens.

    `outputs` are globs of what it leaves (empty: all that it creates or changes), `checkpoints` of what it
    goes on from; `restored` is put into its working folder. `awaited`: the machine counts as used until
    `mark_collected` says that the results were fetched, or they are in the store that `grant` writes to.
    Raises PathTaken where another run is active at an absolute target, UsageError where the id belongs to
    another job or the trees cannot be laid out, HostError where contact was lost.
    """
    spec = {
        **asdict(job),
        "outputs": list(outputs),
        "awaited": awaited,
        "checkpoints": list(checkpoints),
        "restored": asdict(restored) if restored else {},
        "grant": {"url": grant.url, "fields": dict(grant.fields), "prefix": grant.prefix} if grant else {},
    }
    return _checked(host, "start", _ask(RunState, host, agent, "start", stdin=json.dumps(spec).encode()))


def state(host: Host, agent: Agent, run_id: str) -> RunState:
    """How the run stands; "absent" where there is none."""
    return _checked(host, "state", _ask(RunState, host, agent, "state", run_id))


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
    and OutputShrank where the output is shorter than `offset`.
    """
    arguments = (agent.base, run_id, str(offset), *(("--follow",) if live else ()))
    try:
        with host.open(agent.argv("tail", *arguments)) as channel:
            channel.close_stdin()
            while data := channel.read(_CHUNK):
                write(data)
                offset += len(data)
            done = channel.wait()
    except (FollowInterrupted, MalformedAnswer):
        raise
    except HostError as lost:
        raise FollowInterrupted(lost.message, offset) from lost
    if done.returncode == _REFUSED:
        raise _refusal(done)
    if done.returncode != 0:
        raise FollowInterrupted(f"{host.name} stopped sending the output of {run_id}.", offset)
    return offset


def grown(host: Host, agent: Agent, run_id: str, name: str, begin: int, most: int) -> tuple[int, bytes]:
    """Return the size of a file in the run's folder, and up to `most` of its bytes from `begin` on;
    (0, b"") if there is none yet. Raises HostError.
    """
    script = ("sh", "-c", _GROWN, "sh", f"{run_dir(agent, run_id)}/{name}", str(begin + 1), str(most))
    done = host.run(script, timeout=30.0, most=most + 100)
    size, _, data = done.stdout.partition(b"\n")
    if not size.isdigit() or len(size) > 15:
        return 0, b""
    return int(size), data


def mark_collected(host: Host, agent: Agent, run_id: str) -> None:
    """Tell the machine that the run's results are here, whole and verified: it may count as idle from now on.

    May be repeated. Raises HostError where contact was lost.
    """
    host.run(("touch", f"{run_dir(agent, run_id)}/collected"), timeout=30)


def cancel(host: Host, agent: Agent, run_id: str, grace: float = 10.0) -> RunState:
    """End the run: asked first, after `grace` seconds made to. Its state then. Ended already is success."""
    return _checked(host, "cancel", _ask(RunState, host, agent, "cancel", run_id, "--grace", str(grace)))


@dataclass(frozen=True)
class Waiting:
    """A run that was started and not fetched. `reason`: how it ended, None where it may go on."""

    run_id: str
    reason: str | None


def waiting(host: Host, base: str) -> tuple[Waiting, ...]:
    """The runs below `base` that were started to be fetched, and were not. Raises HostError."""
    done = host.run(("sh", "-c", _WAITING, "sh", base), timeout=60.0, most=SHORT)
    if done.returncode != 0:
        raise HostError(f"{host.name} could not list its runs: {last_words(done.stderr)}")
    *said, end = done.stdout.decode(errors="replace").splitlines() or [""]
    if end != ".":
        raise malformed(host.name, "which runs it has", "its list has no end")
    lines = (line.partition(" ") for line in said)
    found = [
        Waiting(name, reason if _REASON.fullmatch(reason) else None)
        for name, _, reason in lines
        if _RUN_ID.fullmatch(name)
    ]
    return tuple(found[:MOST_RUNS])


def room(host: Host, agent: Agent) -> Room:
    """Ask the machine for its free resources."""
    return _ask(Room, host, agent, "room")


def rename(host: Host, agent: Agent, run_id: str, name: str) -> None:
    """Keep a run that has ended under another name, so that its id is free. Absent already is success."""
    script = 'if [ -e "$1" ]; then mv -T -- "$1" "$2"; fi'
    done = host.run(("sh", "-c", script, "sh", run_dir(agent, run_id), run_dir(agent, name)), timeout=60.0)
    if done.returncode != 0:
        raise HostError(f"{host.name} could not rename the run {run_id}: {last_words(done.stderr)}")


@dataclass(frozen=True)
class Unwritten:
    """An output that was asked for and that a run did not write.

    `nearest`: the file that it made whose name is most like it; None where it made none. `no_other`: it wrote
    nothing that was asked for.
    """

    pattern: Annotated[str, Most(4096)]
    nearest: Annotated[str, Most(4096)] | None = None
    no_other: bool = False


@dataclass(frozen=True)
class Mount:
    """A call by which a process of a run changed what lies at a path for it. `target`: "" where it is not
    known."""

    program: Annotated[str, Most(1000)]
    call: Annotated[str, Most(100)]
    target: Annotated[str, Most(1000)] = ""


@dataclass(frozen=True)
class Left:
    """The files that an ended run left. `altered`: data files that were written during the run.

    `mounts`: what it may have read in place of its data. `watched`: whether it was watched for these.
    """

    entries: Annotated[tuple[Entry, ...], Most(MOST_ENTRIES)]
    altered: Annotated[tuple[str, ...], Most(1000)] = ()
    mounts: Annotated[tuple[Mount, ...], Most(100)] = ()
    watched: bool = True
    unwritten: Annotated[tuple[Unwritten, ...], Most(1000)] = ()


def outputs(host: Host, agent: Agent, run_id: str, *, again: bool = False) -> tuple[Entry, ...]:
    """List files that an ended run created or changed, relative to `<run_dir>/work`.

    As it was listed at the run's end; with `again`, as it lies there now.
    """
    return left(host, agent, run_id, again=again).entries


def left(host: Host, agent: Agent, run_id: str, *, again: bool = False) -> Left:
    """As `outputs`, with what became of the run's data."""
    arguments = (run_id, "--again") if again else (run_id,)
    return _ask(Left, host, agent, "outputs", *arguments, most=LONG)


def checkpoints(host: Host, agent: Agent, run_id: str) -> Snapshots:
    """List the whole copies of a run's checkpoints that its machine holds, the newest last."""
    return _ask(Snapshots, host, agent, "checkpoints", run_id, most=LONG)


@dataclass(frozen=True)
class Uploads:
    """What the machine itself put into the run's store. `state`: "none" (it was given no grant), "going"
    (more may come), "done" (all that the run left is there), or "over" (nothing more comes, and not all is
    there). `refused`: why the store did not take what was sent last."""

    state: Literal["none", "going", "done", "over"]
    refused: Annotated[str, Most(1000)] = ""

    @property
    def is_trusted(self) -> bool:
        """Whether nobody else need put there what the run saves."""
        return self.state in ("going", "done") and not self.refused


def uploads(host: Host, agent: Agent, run_id: str) -> Uploads:
    """How far the machine is with what it puts into the store."""
    return _ask(Uploads, host, agent, "uploads", run_id)


@dataclass(frozen=True)
class EventsPiece:
    """Bytes of a file that a run writes for TensorBoard, from byte `at` on; 0 where it was written anew."""

    path: Annotated[str, Most(1000)]
    at: Annotated[int, Between(0, 1 << 40)]
    content: Annotated[str, Most(8 << 20)]


@dataclass(frozen=True)
class Events:
    """What a run wrote for TensorBoard. `more`: there is more now."""

    files: Annotated[tuple[EventsPiece, ...], Most(1000)]
    more: bool


def events(host: Host, agent: Agent, run_id: str, have: Mapping[str, int]) -> Events:
    """What the run's files for TensorBoard have beyond the sizes of `have` (by path, in bytes)."""
    asked = json.dumps({"have": dict(have)}).encode()
    return _ask(Events, host, agent, "events", run_id, stdin=asked, most=LONG)


def checkpoint_files(agent: Agent, run_id: str, seq: int) -> str:
    """The folder on the machine with the files of one copy."""
    return f"{run_dir(agent, run_id)}/checkpoints/{seq:06d}/files"


@dataclass(frozen=True)
class _Refusal:
    """What a verb says on standard error when it cannot do what it was asked."""

    kind: Annotated[str, Most(40)]
    error: Annotated[str, Most(10_000)]
    by: Annotated[str, Like(rf"|{_RUN_ID.pattern}")] = ""


def _ask(
    shape: type[T],
    host: Host,
    agent: Agent,
    verb: str,
    *arguments: str,
    stdin: bytes | None = None,
    most: int = SHORT,
) -> T:
    """One verb's answer. Raises MalformedAnswer where it is no `shape`."""
    argv = agent.argv(verb, agent.base, *arguments)
    done = host.run(argv, stdin=stdin, timeout=_TIMEOUT, most=most)
    if done.returncode != 0:
        raise _refusal(done)
    try:
        return decoded(shape, done.stdout, most=most)
    except Malformed as error:
        raise malformed(host.name, verb, str(error)) from None


def _refusal(done: Completed) -> OrchError:
    try:
        said = decoded(_Refusal, done.stderr)
    except Malformed:
        words = last_words(done.stderr) or "it said nothing"
        return HostError(f"The runtime there ended with status {done.returncode}: {words}")
    if said.kind == "truncated":
        return OutputShrank(plain(said.error), exists="The run itself goes on.", next_command="orch logs -f")
    if said.kind == "taken" and said.by:
        return PathTaken(plain(said.error), said.by)
    of_the_request = said.kind in ("invalid", "conflict", "stage", "absent")
    return UsageError(plain(said.error)) if of_the_request else RunFailed(plain(said.error))


def _checked(host: Host, verb: str, state: RunState) -> RunState:
    """`state`, if its parts agree: what ended says how, and what goes on does not."""
    if (state.exit is not None) != (state.state in ("ended", "lost")):
        raise malformed(
            host.name, verb, f"a run that is {state.state} {'with' if state.exit else 'without'} an end"
        )
    return state
