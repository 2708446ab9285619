"""Kill a verb before each of some of its effects, repeat it, end everything, and look at what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.crash.rig import WEIGHTS, Outcome, Rig

NO_LEASE = 2
"""The exit code of a verb that finds nothing leased: what it was to end has ended."""


@dataclass(frozen=True)
class Kill:
    """One crash point: where the verb was killed, and what the same verb and `down` left behind."""

    verb: str
    number: int
    before: str
    killed: bool
    repeated: str
    machines: int
    leaks: tuple[str, ...]
    partial: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return self.repeated == "" and self.machines <= 1 and not self.leaks and not self.partial


def spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` numbers of 1 … `count`, evenly far apart, with the first and the last."""
    if wanted >= count:
        return list(range(1, count + 1))
    return sorted({1 + round(step * (count - 1) / (wanted - 1)) for step in range(wanted)})


def sweep(rig: Rig, verb: str, wanted: int) -> Iterator[Kill]:
    """Kill `verb` at `wanted` of its points (spread over all of them), one after the other."""
    yield from SWEEPS[verb](rig, wanted)


def _sweep_up(rig: Rig, wanted: int) -> Iterator[Kill]:
    count = rig.do("up", profile="orch.yaml").count
    rig.do("down")
    for number in spread(count, wanted):
        killed = rig.call("up", profile="orch.yaml", kill_before=number)
        again = rig.call("up", profile="orch.yaml")
        machines = len(rig.cloud.alive())
        yield _seen(rig, "up", number, killed, again.error or "", machines)


def _sweep_train(rig: Rig, wanted: int) -> Iterator[Kill]:
    rig.do("up", profile="orch.yaml")
    rig.do("train", run_id="first")
    count = rig.do("train", run_id="second").count
    for number in spread(count, wanted):
        name = f"train-{number}"
        killed = rig.call("train", run_id=name, kill_before=number)
        again = rig.call("train", run_id=name)
        yield _seen(rig, "train", number, killed, again.error or _unsound(rig, name), 1, end=False)
    yield _ended(rig, "train")


def _sweep_pull(rig: Rig, wanted: int) -> Iterator[Kill]:
    rig.do("up", profile="orch.yaml")
    rig.do("train", run_id="first")
    rig.do("train", run_id="counted", detach=True)
    rig.call("attach", run_id="counted", kill_before=1)
    count = rig.do("attach", run_id="counted").count
    for number in spread(count, wanted):
        name = f"pull-{number}"
        rig.do("train", run_id=name, detach=True)
        killed = rig.call("attach", run_id=name, kill_before=number)
        again = rig.call("attach", run_id=name)
        yield _seen(rig, "pull", number, killed, again.error or _unsound(rig, name), 1, end=False)
    yield _ended(rig, "pull")


def _sweep_down(rig: Rig, wanted: int) -> Iterator[Kill]:
    rig.do("up", profile="orch.yaml")
    count = rig.do("down").count
    for number in spread(count, wanted):
        rig.do("up", profile="orch.yaml")
        killed = rig.call("down", kill_before=number)
        yield _seen(rig, "down", number, killed, "", 0)


def _sweep_run(rig: Rig, wanted: int) -> Iterator[Kill]:
    count = rig.do("run", profile="orch.yaml", run_id="counted").count
    for number in spread(count, wanted):
        name = f"run-{number}"
        killed = rig.call("run", profile="orch.yaml", run_id=name, kill_before=number)
        again = rig.call("run", profile="orch.yaml", run_id=name)
        yield _seen(rig, "run", number, killed, again.error or _unsound(rig, name), 1)


SWEEPS: dict[str, Callable[[Rig, int], Iterator[Kill]]] = {
    "up": _sweep_up,
    "train": _sweep_train,
    "pull": _sweep_pull,
    "down": _sweep_down,
    "run": _sweep_run,
}


def _seen(
    rig: Rig, verb: str, number: int, killed: Outcome, repeated: str, machines: int, *, end: bool = True
) -> Kill:
    """What a kill came to; with `end`, after everything was ended."""
    if end:
        ended = rig.call("down", discard=True)
        if ended.error and ended.exit_code != NO_LEASE:
            repeated = repeated or ended.error
    leaks = tuple(rig.leaks()) if end else ()
    partial = tuple(rig.partial_files())
    return Kill(verb, number, killed.last, killed.killed, repeated, machines, leaks, partial)


def _ended(rig: Rig, verb: str) -> Kill:
    """The end of a lease on which several runs were killed: nothing of it may be left."""
    ended = rig.do("down")
    return _seen(rig, f"{verb}, then down", 0, ended, "", 0)


def _unsound(rig: Rig, run_id: str) -> str:
    """What is wrong with the files of a run that came home; "" where nothing is."""
    folder = rig.folder / "runs" / run_id
    fetched = folder / "outputs" / "out" / "weights.bin"
    if not (folder / "run.json").is_file():
        return f"{run_id} has no run.json"
    return "" if fetched.is_file() and fetched.read_bytes() == WEIGHTS else f"{run_id}: other weights"


def table(kills: list[Kill]) -> str:
    """One line for each verb: kills, and what they left."""
    lines = [f"{'verb':<18} {'kills':>5} {'failed again':>12} {'leaks':>5} {'partial files':>13}"]
    for verb in dict.fromkeys(kill.verb for kill in kills):
        mine = [kill for kill in kills if kill.verb == verb]
        failed = sum(bool(kill.repeated) for kill in mine)
        leaks, partial = sum(len(kill.leaks) for kill in mine), sum(len(kill.partial) for kill in mine)
        killed = sum(kill.killed for kill in mine)
        lines.append(f"{verb:<18} {killed:>5} {failed:>12} {leaks:>5} {partial:>13}")
    return "\n".join(lines)
