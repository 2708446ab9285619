"""Start, follow and end runs through a Host. Their whole state is in the run's folder on that side."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, TypeVar

from orchestrator.errors import Busy, DiskFull, HostError, MalformedAnswer, OrchError, RunFailed, UsageError
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
"""Maximum number of runs of one machine that wait to be fetched; further ones are ignored."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REASON = re.compile(r"[a-z_]{1,40}")

_WAITING = r"""
for run in "$1"/runs/*; do
    case "${run##*/}" in *[!A-Za-z0-9._-]*) continue ;; esac
    [ -f "$run/started.json" ] || [ -f "$run/queued.json" ] || continue
    [ -f "$run/spec.json" ] && [ ! -e "$run/collected" ] || continue
    head -c 4194304 "$run/spec.json" | grep -qF '"awaited": true' || continue
    reason=
    [ -f "$run/exit.json" ] && reason=$(head -c 65536 "$run/exit.json" | tr -d '\n' |
        sed -n 's/.*"reason": "\([a-z_]*\)".*/\1/p')
    printf '%s %s\n' "${run##*/}" "$reason"
done
[ ! -e "$1/runs" ] || [ -r "$1/runs" ] && echo .
"""
"""Shell text, so that it works with every version of the runtime there, and without one."""

_GROWN = r"""
[ -f "$1" ] || exit 0
stat -c %s "$1"
tail -c "+$2" "$1" | head -c "$3"
"""

MOST_ENTRIES = 1_000_000
"""Maximum number of files, folders and links of one run."""


class FollowInterrupted(HostError):
    """Contact was lost while a run's output was read; the run goes on.

    Every byte before `offset` was passed on, and none after it: follow again from there.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, exists="The run itself continues.", next_command="orch logs -f")
        self.offset = offset


class PathTaken(Busy):
    """The data of an active run are at a path that this job needs. `run_id`: that other run."""

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message, next_command=f"orch logs -f {run_id}    # then the same command again")
        self.run_id = run_id


class OutputShrank(MalformedAnswer):
    """A run's output on the machine is shorter than what was read of it before."""


def run_dir(agent: Agent, run_id: str) -> str:
    """Return the run's folder on that side."""
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
    queued: bool = False,
) -> RunState:
    """Start the job, detached, or return the state of the one that was started already: a run id runs only
    once.

    `outputs`: globs of the files to collect (empty: all that it creates or changes). `checkpoints`: globs of
    the files from which it can resume. `restored`: files to put into its working folder. `awaited`: the
    machine counts as used until `mark_collected` reports that the results were fetched, or until they are in
    the store that `grant` writes to. `queued`: the job begins when all runs that are active or queued there
    now have ended. Raises PathTaken if another run is active at an absolute target,
    UsageError if the id belongs to another job or the trees cannot be laid out, HostError if contact is lost.
    """
    spec = {
        **asdict(job),
        "outputs": list(outputs),
        "awaited": awaited,
        "checkpoints": list(checkpoints),
        "restored": asdict(restored) if restored else {},
        "grant": {"url": grant.url, "fields": dict(grant.fields), "prefix": grant.prefix} if grant else {},
        "queued": queued,
    }
    return _checked(host, "start", _ask(RunState, host, agent, "start", stdin=json.dumps(spec).encode()))


def state(host: Host, agent: Agent, run_id: str) -> RunState:
    """Return the run's state; "absent" if there is no such run."""
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
    """Pass on the run's output from byte `offset` until the run has ended; returns the new offset.

    Without `live`, only what exists now. Raises FollowInterrupted, a HostError, if contact is lost, and
    OutputShrank if the output is shorter than `offset`.
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
    """Tell the machine that the run's results are here, complete and verified, so that it may count as idle.

    May be repeated. Raises HostError if contact is lost.
    """
    host.run(("touch", f"{run_dir(agent, run_id)}/collected"), timeout=30)


def cancel(host: Host, agent: Agent, run_id: str, grace: float = 10.0) -> RunState:
    """End the run: ask it to, and kill it after `grace` seconds; returns its state. An ended run is a
    success.
    """
    return _checked(host, "cancel", _ask(RunState, host, agent, "cancel", run_id, "--grace", str(grace)))


@dataclass(frozen=True)
class Waiting:
    """A run that was started and not fetched. `reason`: how it ended, None if it may still be running."""

    run_id: str
    reason: str | None


def waiting(host: Host, base: str) -> tuple[Waiting, ...]:
    """Return the runs below `base` whose results were requested and not fetched yet. Raises HostError."""
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
    """Rename an ended run, so that its id is free. A missing run is a success."""
    script = 'if [ -e "$1" ]; then mv -T -- "$1" "$2"; fi'
    done = host.run(("sh", "-c", script, "sh", run_dir(agent, run_id), run_dir(agent, name)), timeout=60.0)
    if done.returncode != 0:
        raise HostError(f"{host.name} could not rename the run {run_id}: {last_words(done.stderr)}")


@dataclass(frozen=True)
class Unwritten:
    """A requested output that a run did not write.

    `nearest`: the file of the run with the most similar name; None if it wrote none. `no_other`: it wrote no
    requested output at all.
    """

    pattern: Annotated[str, Most(4096)]
    nearest: Annotated[str, Most(4096)] | None = None
    no_other: bool = False


@dataclass(frozen=True)
class Mount:
    """A system call by which a process of a run changed what is visible at a path. `target`: "" if it is not
    known.
    """

    program: Annotated[str, Most(1000)]
    call: Annotated[str, Most(100)]
    target: Annotated[str, Most(1000)] = ""


@dataclass(frozen=True)
class Left:
    """The files that an ended run left. `altered`: data files that were written during the run.

    `mounts`: mounts that may have hidden its data. `watched`: whether the run was watched for mounts.
    """

    entries: Annotated[tuple[Entry, ...], Most(MOST_ENTRIES)]
    altered: Annotated[tuple[str, ...], Most(1000)] = ()
    mounts: Annotated[tuple[Mount, ...], Most(100)] = ()
    watched: bool = True
    unwritten: Annotated[tuple[Unwritten, ...], Most(1000)] = ()


def outputs(host: Host, agent: Agent, run_id: str, *, again: bool = False) -> tuple[Entry, ...]:
    """List files that an ended run created or changed, relative to `<run_dir>/work`.

    As listed at the run's end; with `again`, as they are now.
    """
    return left(host, agent, run_id, again=again).entries


def left(host: Host, agent: Agent, run_id: str, *, again: bool = False) -> Left:
    """Return the same as `outputs`, and what happened to the run's data."""
    arguments = (run_id, "--again") if again else (run_id,)
    return _ask(Left, host, agent, "outputs", *arguments, most=LONG)


def checkpoints(host: Host, agent: Agent, run_id: str) -> Snapshots:
    """List the complete copies of a run's checkpoints on its machine, the newest last."""
    return _ask(Snapshots, host, agent, "checkpoints", run_id, most=LONG)


@dataclass(frozen=True)
class Uploads:
    """What the machine itself uploaded to the run's store. `state`: "none" (it has no grant), "going" (more
    may come), "done" (everything that the run left was uploaded), or "over" (nothing more comes, and
    something is missing). `refused`: why the store refused the last upload.
    """

    state: Literal["none", "going", "done", "over"]
    refused: Annotated[str, Most(1000)] = ""

    @property
    def is_trusted(self) -> bool:
        """Return whether the machine uploads everything, so that no client has to."""
        return self.state in ("going", "done") and not self.refused


def uploads(host: Host, agent: Agent, run_id: str) -> Uploads:
    """Return the progress of the machine's uploads to the store."""
    return _ask(Uploads, host, agent, "uploads", run_id)


@dataclass(frozen=True)
class EventsPiece:
    """Bytes of a file that a run writes for TensorBoard, from byte `at` on; 0 if the file was written
    anew.
    """

    path: Annotated[str, Most(1000)]
    at: Annotated[int, Between(0, 1 << 40)]
    content: Annotated[str, Most(8 << 20)]


@dataclass(frozen=True)
class Events:
    """What a run wrote for TensorBoard. `more`: further bytes exist already."""

    files: Annotated[tuple[EventsPiece, ...], Most(1000)]
    more: bool


def events(host: Host, agent: Agent, run_id: str, have: Mapping[str, int]) -> Events:
    """Return what the run's TensorBoard files have beyond the sizes in `have` (by path, in bytes)."""
    asked = json.dumps({"have": dict(have)}).encode()
    return _ask(Events, host, agent, "events", run_id, stdin=asked, most=LONG)


def checkpoint_files(agent: Agent, run_id: str, seq: int) -> str:
    """Return the folder on the machine with the files of one copy."""
    return f"{run_dir(agent, run_id)}/checkpoints/{seq:06d}/files"


@dataclass(frozen=True)
class _Refusal:
    """The message of a verb on standard error if it fails."""

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
    """Return the answer of one verb. Raises MalformedAnswer if it does not have this `shape`."""
    argv = agent.argv(verb, agent.base, *arguments)
    done = host.run(argv, stdin=stdin, timeout=_TIMEOUT, most=most)
    if done.returncode != 0:
        raise _refusal(done)
    try:
        return decoded(shape, done.stdout, most=most)
    except Malformed as error:
        raise malformed(host.name, verb, str(error)) from None


def _refusal(done: Completed) -> OrchError:
    from orchestrator.runtime import space  # verbs that ask no machine do without

    try:
        said = decoded(_Refusal, done.stderr)
    except Malformed:
        words = last_words(done.stderr) or "it said nothing"
        if done.returncode == space.STATUS:
            return DiskFull(f"The machine's disk is full: {words}")
        return HostError(f"The runtime there ended with status {done.returncode}: {words}")
    if said.kind == space.KIND:
        return DiskFull(f"The machine's disk is full: {plain(said.error)}")
    if said.kind == "truncated":
        return OutputShrank(
            plain(said.error), exists="The run itself continues.", next_command="orch logs -f"
        )
    if said.kind == "taken" and said.by:
        return PathTaken(plain(said.error), said.by)
    of_the_request = said.kind in ("invalid", "conflict", "stage", "absent")
    return UsageError(plain(said.error)) if of_the_request else RunFailed(plain(said.error))


def _checked(host: Host, verb: str, state: RunState) -> RunState:
    """Return `state` if it is consistent: an ended run has an exit, an active one has none."""
    if (state.exit is not None) != (state.state in ("ended", "lost")):
        raise malformed(
            host.name, verb, f"a run that is {state.state} {'with' if state.exit else 'without'} an end"
        )
    return state
