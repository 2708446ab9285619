"""Kill a verb before each of some of its effects, repeat it, end everything, and look at what is left."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tests.crash.cloud import StoredCloud
from tests.crash.rig import WEIGHTS, Outcome, Rig

NO_LEASE = 2
"""The exit code of a verb that finds nothing leased: what it was to end has ended."""


@dataclass(frozen=True)
class Kill:
    """One crash point: where the verb was killed, and what the same verb and `down` left behind."""

    cloud: str
    verb: str
    point: int | str
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


Points = int | Sequence[str]
"""How many effects, spread over all of a verb; or a pattern of each, as Points.arm takes it."""


def sweep(rig: Rig, verb: str, wanted: Points) -> Iterator[Kill]:
    """Kill `verb` at the points that are `wanted`, one after the other."""
    yield from SWEEPS[verb](rig if verb.startswith("up") else _prepared(rig), wanted)


def _points(wanted: Points, counted: Callable[[], int]) -> Sequence[int | str]:
    """Effects are counted, by a call that nobody kills, only where a number of them is wanted."""
    return spread(counted(), wanted) if isinstance(wanted, int) else wanted


def _effects_of_up(rig: Rig) -> int:
    """Of the second one: the first also makes what later ones find, such as the environment of this side."""
    for _ in ("first", "counted"):
        count = rig.do("up", profile="orch.yaml").count
        rig.do("down")
    return count


def _sweep_up(rig: Rig, wanted: Points) -> Iterator[Kill]:
    for point in _points(wanted, lambda: _effects_of_up(rig)):
        killed = rig.call("up", profile="orch.yaml", kill_before=point)
        again = rig.call("up", profile="orch.yaml")
        machines = len(rig.cloud.alive())
        yield _seen(rig, "up", point, killed, again.error or "", machines)


def _sweep_given_up(rig: Rig, wanted: Points) -> Iterator[Kill]:
    """`up` is killed, and nobody repeats it."""
    for point in _points(wanted, lambda: _effects_of_up(rig)):
        killed = rig.call("up", profile="orch.yaml", kill_before=point)
        yield _seen(rig, "up, only down", point, killed, "", len(rig.cloud.alive()))


def lives_at(rig: Rig, wanted: int) -> Iterator[Kill]:
    """Machines whose `up`, and then their `down`, are killed at so many points, spread over each verb."""
    ups, downs = (
        rig.do(verb, **given).count for verb, given in (("up", {"profile": "orch.yaml"}), ("down", {}))
    )
    yield from lives(rig, spread(ups, wanted), spread(downs, wanted))


def lives(rig: Rig, ups: Sequence[int | str], downs: Sequence[int | str]) -> Iterator[Kill]:
    """Machines whose `up` is killed and repeated, and then, as long as there are `downs`, their `down`."""
    for up, down in zip_longest(ups, downs):
        killed = rig.call("up", profile="orch.yaml", kill_before=up)
        again = rig.call("up", profile="orch.yaml")
        machines = len(rig.cloud.alive())
        yield _seen(rig, "up", up, killed, again.error or "", machines, end=down is None)
        if down is not None:
            yield _seen(rig, "down", down, rig.call("down", kill_before=down), "", 0)


def _prepared(rig: Rig) -> Rig:
    """Later machines need not be sent the installer: to send it is what the sweeps of `up` are killed at."""
    if isinstance(rig.cloud, StoredCloud) and not rig.cloud.has_image:
        rig.do("up", profile="orch.yaml")
        rig.cloud.make_image()
        rig.do("down")
    return rig


def _sweep_train(rig: Rig, wanted: Points) -> Iterator[Kill]:
    rig.do("up", profile="orch.yaml")
    rig.do("train", run_id="first")
    points = _points(wanted, lambda: rig.do("train", run_id="second").count)
    for number, point in enumerate(points):
        name = f"train-{number}"
        killed = rig.call("train", run_id=name, kill_before=point)
        again = rig.call("train", run_id=name)
        yield _seen(rig, "train", point, killed, again.error or _unsound(rig, name), 1, end=False)
    yield _ended(rig, "train")


def _sweep_pull(rig: Rig, wanted: Points) -> Iterator[Kill]:
    rig.do("up", profile="orch.yaml")
    rig.do("train", run_id="first")

    def counted() -> int:
        rig.do("train", run_id="counted", detach=True)
        rig.call("attach", run_id="counted", kill_before=1)
        return rig.do("attach", run_id="counted").count

    for number, point in enumerate(_points(wanted, counted)):
        name = f"pull-{number}"
        rig.do("train", run_id=name, detach=True)
        killed = rig.call("attach", run_id=name, kill_before=point)
        again = rig.call("attach", run_id=name)
        yield _seen(rig, "pull", point, killed, again.error or _unsound(rig, name), 1, end=False)
    yield _ended(rig, "pull")


def _sweep_down(rig: Rig, wanted: Points) -> Iterator[Kill]:
    def counted() -> int:
        rig.do("up", profile="orch.yaml")
        return rig.do("down").count

    for point in _points(wanted, counted):
        rig.do("up", profile="orch.yaml")
        killed = rig.call("down", kill_before=point)
        yield _seen(rig, "down", point, killed, "", 0)


def _sweep_run(rig: Rig, wanted: Points) -> Iterator[Kill]:
    def counted() -> int:
        """Of the second one, as of `up`."""
        rig.do("run", profile="orch.yaml", run_id="first")
        return rig.do("run", profile="orch.yaml", run_id="counted").count

    for number, point in enumerate(_points(wanted, counted)):
        name = f"run-{number}"
        killed = rig.call("run", profile="orch.yaml", run_id=name, kill_before=point)
        again = rig.call("run", profile="orch.yaml", run_id=name)
        machines = len(rig.cloud.alive())
        yield _seen(rig, "run", point, killed, again.error or _unsound(rig, name), machines)


def _sweep_retry(rig: Rig, wanted: Points) -> Iterator[Kill]:
    """The machine of each first attempt fails while its job runs; `run` is killed before, then or later."""
    script = rig.folder / "train.py"
    script.write_text(WAITS_AT_FIRST + script.read_text())
    with open(rig.folder / "orch.yaml", "a") as profile:
        profile.write("retry: {interruption: 1}\n")

    def counted() -> int:
        rig.do("run", profile="orch.yaml", run_id="first")
        return rig.do("run", profile="orch.yaml", run_id="counted").count

    with _failing(rig.cloud.folder):
        for number, point in enumerate(_points(wanted, counted)):
            name = f"retry-{number}"
            killed = rig.call("run", profile="orch.yaml", run_id=name, kill_before=point)
            again = rig.call("run", profile="orch.yaml", run_id=name)
            machines = len(rig.cloud.alive())
            wrong = again.error or _unsound(rig, name) or _not_retried(rig, name)
            yield _seen(rig, "retry", point, killed, wrong, machines)


WAITS_AT_FIRST = """
import os, time
if os.environ["ORCH_ATTEMPT"] == "1":
    print("waiting", flush=True)
    time.sleep(120)
"""


@contextmanager
def _failing(cloud: Path) -> Iterator[None]:
    """Each machine fails whose job says that it waits."""
    over = threading.Event()

    def fail() -> None:
        while not over.wait(0.05):
            for log in (cloud / "machines").glob("*/runs/*/output.log"):
                with suppress(OSError):
                    if log.read_bytes().startswith(b"waiting"):
                        StoredCloud(cloud).end(log.parts[-4])

    thread = threading.Thread(target=fail)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _not_retried(rig: Rig, run_id: str) -> str:
    """What is wrong with a run's attempts and its log; "" where nothing is."""
    folder = rig.folder / "runs" / run_id
    told = [each["reason"] for each in json.loads((folder / "run.json").read_text())["attempts"]]
    if told != ["lost", "completed"]:
        return f"{run_id}: {told}"
    printed = [line for line in (folder / "output.log").read_text().splitlines() if line[:5] != "[orch"]
    whole = printed in (["waiting", "trained"], ["trained"])  # what nobody followed went with its machine
    return "" if whole else f"{run_id}: {printed}"


SWEEPS: dict[str, Callable[[Rig, Points], Iterator[Kill]]] = {
    "up": _sweep_up,
    "up, only down": _sweep_given_up,
    "train": _sweep_train,
    "pull": _sweep_pull,
    "down": _sweep_down,
    "run": _sweep_run,
    "retry": _sweep_retry,
}
OF_MEMORY = ("retry",)
"""Sweeps in which machines fail: the cloud in memory lets them."""


def _seen(
    rig: Rig, verb: str, point: int | str, killed: Outcome, repeated: str, machines: int, *, end: bool = True
) -> Kill:
    """What a kill came to; with `end`, after everything was ended."""
    if end:
        ended = rig.call("down", discard=True)
        if ended.error and ended.exit_code != NO_LEASE:
            repeated = repeated or ended.error
    leaks = tuple(rig.leaks()) if end else ()
    partial = tuple(rig.partial_files())
    return Kill(rig.kind, verb, point, killed.last, killed.killed, repeated, machines, leaks, partial)


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
    """One line for each cloud and verb: kills, and what they left."""
    lines = [
        f"{'cloud':<7} {'verb':<17} {'kills':>5} {'failed again':>12} {'2 machines':>10} {'leaks':>5} "
        f"{'partial files':>13}"
    ]
    for cloud, verb in dict.fromkeys((kill.cloud, kill.verb) for kill in kills):
        mine = [kill for kill in kills if (kill.cloud, kill.verb) == (cloud, verb)]
        failed, twice = sum(bool(kill.repeated) for kill in mine), sum(kill.machines > 1 for kill in mine)
        leaks, partial = sum(len(kill.leaks) for kill in mine), sum(len(kill.partial) for kill in mine)
        killed = sum(kill.killed for kill in mine)
        lines.append(f"{cloud:<7} {verb:<17} {killed:>5} {failed:>12} {twice:>10} {leaks:>5} {partial:>13}")
    return "\n".join(lines)
