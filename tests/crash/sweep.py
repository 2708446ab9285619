"""Kill a verb before each of some of its effects, repeat it, end everything, and look at what is left."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path

from tests.crash.cloud import StoredCloud
from tests.crash.image_sweeps import IMAGE_SWEEPS
from tests.crash.kill import Kill, Points, points_of, seen, spread
from tests.crash.rig import WEIGHTS, Rig


def sweep(rig: Rig, verb: str, wanted: Points) -> Iterator[Kill]:
    """Kill `verb` at the points that are `wanted`, one after the other."""
    yield from SWEEPS[verb](rig if verb.startswith(("up", "image")) else _prepared(rig), wanted)


def _effects_of_up(rig: Rig) -> int:
    """Of the second one: the first also makes what later ones find, such as the environment of this side."""
    for _ in ("first", "counted"):
        count = rig.do("up", profile="orch.yaml").count
        rig.do("down")
    return count


def _sweep_up(rig: Rig, wanted: Points) -> Iterator[Kill]:
    for point in points_of(wanted, lambda: _effects_of_up(rig)):
        killed = rig.call("up", profile="orch.yaml", kill_before=point)
        again = rig.call("up", profile="orch.yaml")
        machines = len(rig.cloud.alive())
        yield seen(rig, "up", point, killed, again.error or "", machines)


def _sweep_given_up(rig: Rig, wanted: Points) -> Iterator[Kill]:
    """`up` is killed, and nobody repeats it."""
    for point in points_of(wanted, lambda: _effects_of_up(rig)):
        killed = rig.call("up", profile="orch.yaml", kill_before=point)
        yield seen(rig, "up, only down", point, killed, "", len(rig.cloud.alive()))


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
        yield seen(rig, "up", up, killed, again.error or "", machines, end=down is None)
        if down is not None:
            yield seen(rig, "down", down, rig.call("down", kill_before=down), "", 0)


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
    points = points_of(wanted, lambda: rig.do("train", run_id="second").count)
    for number, point in enumerate(points):
        name = f"train-{number}"
        killed = rig.call("train", run_id=name, kill_before=point)
        again = rig.call("train", run_id=name)
        yield seen(rig, "train", point, killed, again.error or _unsound(rig, name), 1, end=False)
    yield _ended(rig, "train")


def _sweep_pull(rig: Rig, wanted: Points) -> Iterator[Kill]:
    rig.do("up", profile="orch.yaml")
    rig.do("train", run_id="first")

    def counted() -> int:
        rig.do("train", run_id="counted", detach=True)
        rig.call("attach", run_id="counted", kill_before=1)
        return rig.do("attach", run_id="counted").count

    for number, point in enumerate(points_of(wanted, counted)):
        name = f"pull-{number}"
        rig.do("train", run_id=name, detach=True)
        killed = rig.call("attach", run_id=name, kill_before=point)
        again = rig.call("attach", run_id=name)
        yield seen(rig, "pull", point, killed, again.error or _unsound(rig, name), 1, end=False)
    yield _ended(rig, "pull")


def _sweep_down(rig: Rig, wanted: Points) -> Iterator[Kill]:
    def counted() -> int:
        rig.do("up", profile="orch.yaml")
        return rig.do("down").count

    for point in points_of(wanted, counted):
        rig.do("up", profile="orch.yaml")
        killed = rig.call("down", kill_before=point)
        yield seen(rig, "down", point, killed, "", 0)


def _sweep_run(rig: Rig, wanted: Points) -> Iterator[Kill]:
    def counted() -> int:
        """Of the second one, as of `up`."""
        rig.do("run", profile="orch.yaml", run_id="first")
        return rig.do("run", profile="orch.yaml", run_id="counted").count

    for number, point in enumerate(points_of(wanted, counted)):
        name = f"run-{number}"
        killed = rig.call("run", profile="orch.yaml", run_id=name, kill_before=point)
        again = rig.call("run", profile="orch.yaml", run_id=name)
        machines = len(rig.cloud.alive())
        yield seen(rig, "run", point, killed, again.error or _unsound(rig, name), machines)


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
        for number, point in enumerate(points_of(wanted, counted)):
            name = f"retry-{number}"
            killed = rig.call("run", profile="orch.yaml", run_id=name, kill_before=point)
            again = rig.call("run", profile="orch.yaml", run_id=name)
            machines = len(rig.cloud.alive())
            wrong = again.error or _unsound(rig, name) or _not_retried(rig, name)
            yield seen(rig, "retry", point, killed, wrong, machines)


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
    **IMAGE_SWEEPS,
}
OF_MEMORY = ("retry",)
"""Sweeps in which machines fail: the cloud in memory lets them."""


def verbs_of(kind: str) -> list[str]:
    """The verbs that are killed on such a cloud. Images of the one in memory die with their caller."""
    return [verb for verb in SWEEPS if verb not in (IMAGE_SWEEPS if kind == "memory" else OF_MEMORY)]


def _ended(rig: Rig, verb: str) -> Kill:
    """The end of a lease on which several runs were killed: nothing of it may be left."""
    ended = rig.do("down")
    return seen(rig, f"{verb}, then down", 0, ended, "", 0)


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
