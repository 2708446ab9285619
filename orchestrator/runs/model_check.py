"""Check after a run that its models, weights, scalers and so on load here, and predict as they did on the
machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import HostError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import Agent, Channel, Entry, Host
from orchestrator.model.answers import LONG, Malformed, parsed
from orchestrator.model.files import first_bytes
from orchestrator.model.plain import last_words
from orchestrator.runtime import space
from orchestrator.runtime.modelcheck.answers import sound
from orchestrator.runtime.modelcheck.compare import against, method
from orchestrator.runtime.modelcheck.explain import Cause, Refusal
from orchestrator.runtime.modelcheck.select import HEAD, checkable

_TIMEOUT = 600.0
"""Seconds for all files of one side; importing the framework takes most of it."""

_MOST = 4 * LONG
"""Most bytes of the answer for all files, which contains the values of small arrays."""

_MOST_FILES = 256
_MOST_NAMES = 60_000
"""Most files of a run that are checked, and most bytes of their paths; a shell accepts 128 KiB a command."""

_MOST_VALUES = 1 << 62

_GONE = Refusal(
    "its results went to the store, and their predictions on the machine were not recorded",
    "Load it by hand before you use it.",
    Cause.MACHINE_GONE,
)

KEPT = "model-check.json"
"""The machine's results, in the folder of the run."""

Result = dict[str, Any]
"""The result for one file, as returned by `sound`."""


@dataclass(frozen=True)
class Side:
    """A computer with the stack's own interpreter (that of `agent`), and the run's `outputs` and `code`
    there.

    `ahead`: a check that has imported its framework, and waits there for its files.
    """

    host: Host
    agent: Agent
    outputs: str
    code: str
    ahead: Channel | None = None


@contextmanager
def started_ahead(side: Side, imports: Sequence[str] = ()) -> Iterator[Side]:
    """Start the check of that side early, so that it imports its framework before the files exist.

    It runs at the lowest priority, ends with the block or the connection, and reads no file before it
    receives the names.
    """
    with ExitStack() as running:
        with suppress(HostError):
            options = ("--folder", side.code, *_named(imports))
            channel = side.host.open(side.agent.argv("check-model", "--ahead", side.outputs, *options))
            side = replace(side, ahead=running.enter_context(channel))
        yield side


def check(
    there: Side, here: Side, entries: Sequence[Entry], folder: Path, imports: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Check the models of a run on both sides. Return path, loaded, equal, reason, way_out, not_checked of
    the worst, and all in `files`.

    Return None if the run left no such files. The files are read in an isolated process on each side, at the
    same time, because loading the framework takes most of the time. `isolation` names what isolated it here.
    `imports`: the modules that the user lets it import. The machine's results are kept in `folder`. A failed
    check is a result; it raises nothing.
    """
    files = (entry.path for entry in entries if entry.kind == "file")
    every = checkable(files, lambda path: _head(Path(here.outputs) / path))
    if not every:
        return None
    names = _first(every, max(len(there.outputs), len(here.outputs)))
    found, ours = _both(there, here, names, imports, folder.name)
    atomic_write(folder / KEPT, json.dumps({"v": 1, "results": found}).encode())
    compared = [{**mine, **against(theirs, mine)} for theirs, mine in zip(found, ours, strict=True)]
    answers = [_answer(*each) for each in zip(names, found, compared, strict=True)]
    answers += [_answer(path, {}, _beyond(len(names))) for path in every[len(names) :]]
    return _worst_first(answers, next((each["isolation"] for each in ours if each.get("isolation")), None))


def unchecked(entries: Sequence[Entry], outputs: Path) -> dict[str, Any] | None:
    """Return the result of `check` for a run whose machine is gone and left it in a store: its
    predictions on the machine are not known.
    """
    files = (entry.path for entry in entries if entry.kind == "file")
    every = checkable(files, lambda path: _head(outputs / path))
    answers = [_answer(path, {}, _refused(_GONE)) for path in every[:_MOST_FILES]]
    return _worst_first(answers) if answers else None


def _worst_first(answers: Sequence[dict[str, Any]], isolation: object = None) -> dict[str, Any]:
    worst = min(answers, key=_rank)
    kept = ("path", "kind", "loaded", "equal", "reason", "way_out", "not_checked", "predicted", "method")
    return {**{key: worst[key] for key in kept}, "isolation": isolation, "files": list(answers)}


def _head(path: Path) -> bytes:
    """Return the first bytes of a fetched file; b"" if it cannot be read or is a link."""
    return first_bytes(path, HEAD)


def _first(names: Sequence[str], folder: int) -> Sequence[str]:
    """Return the first files, as many as one command line can name with a path of `folder` characters
    before each.
    """
    spent = 0
    for place, name in enumerate(names[:_MOST_FILES]):
        spent += folder + len(name.encode()) + 4
        if spent > _MOST_NAMES:
            return names[:place]
    return names[:_MOST_FILES]


def _beyond(checked: int) -> dict[str, Any]:
    return _refused(
        Refusal(
            f"{checked:,} were checked",
            "Save fewer files, as arrays of one .npz; their bytes are verified all the same.",
            Cause.TOO_MANY,
        )
    )


def _refused(refusal: Refusal) -> dict[str, Any]:
    cause = refusal.cause.value if refusal.cause else None
    return {**_failed(refusal.reason), "way_out": refusal.way_out, "not_checked": cause}


def _rank(answer: Mapping[str, Any]) -> int:
    """Return a sort key, the worst first. Of equal ones the first file comes first: a whole model if
    there is one.
    """
    if answer["not_checked"]:
        return 2
    if not answer["loaded"]:
        return 0
    if answer["equivalent"] is False:
        return 1
    return 4 if answer["equal"] else 3


def _both(
    there: Side, here: Side, names: Sequence[str], imports: Sequence[str], run: str
) -> tuple[list[Result], list[Result]]:
    """Return the result of every file on each side. If the check itself failed on a side, all its files
    have that result.
    """
    with ExitStack() as running:
        ahead = [_told(side, names) for side in (there, here)]
        begun = [
            ready or _begun(side, names, imports, running)
            for side, ready in zip((there, here), ahead, strict=True)
        ]

        def results(number: int, side: Side, where: str) -> list[Result]:
            full = _no_room(where, run)
            if ahead[number] and (found := _results(begun[number], names, full, again=True)):
                return found
            again = _begun(side, names, imports, running) if ahead[number] else begun[number]
            return _results(again, names, full) or []

        return results(0, there, "on the machine"), results(1, here, "on this computer")


def _no_room(where: str, run: str) -> Refusal:
    """Return why nothing was checked on a side whose disk is full. `run`: the id of the run."""
    return Refusal(
        f"{where}: the check had no space for its scratch folder",
        f"Free space there, then: orch pull {run} --again",
        Cause.DISK_FULL,
    )


def _named(imports: Sequence[str]) -> list[str]:
    return [word for module in imports for word in ("--import", module)]


def _told(side: Side, names: Sequence[str]) -> Channel | None:
    """Give the files to the check that was started ahead, and return its channel; None if it does not run
    any more.
    """
    if side.ahead is None:
        return None
    try:
        side.ahead.write(json.dumps({"paths": [f"{side.outputs}/{name}" for name in names]}).encode() + b"\n")
        side.ahead.close_stdin()
    except HostError:
        return None
    return side.ahead


def _begun(
    side: Side, names: Sequence[str], imports: Sequence[str], running: ExitStack
) -> Channel | HostError:
    """Start the command that checks the files on one side; return its channel, or the error."""
    paths = (f"{side.outputs}/{name}" for name in names)
    try:
        argv = side.agent.argv("check-model", *paths, "--folder", side.code, *_named(imports))
        channel = running.enter_context(side.host.open(argv))
        channel.close_stdin()
    except HostError as error:
        return error
    return channel


def _results(
    begun: Channel | HostError, names: Sequence[str], full: Refusal, *, again: bool = False
) -> list[Result] | None:
    """Return the results, one for each file. With `again`, None if another check may have better results.
    `full`: why none was checked, if that side's disk is full.
    """
    if isinstance(begun, HostError):
        return [_failed(str(begun)) for _ in names]
    try:
        done = begun.wait(_TIMEOUT)
        if again and not done.stdout:
            return None
        value = parsed(done.stdout, most=_MOST)
    except HostError as error:
        return None if again else [_failed(str(error)) for _ in names]
    except Malformed:
        if done.returncode == space.STATUS:
            return [_refused(full) for _ in names]
        words = last_words(done.stderr)
        return [_failed(f"the check itself ended with {done.returncode}: {words}") for _ in names]
    results = value.get("results", [value]) if isinstance(value, dict) else []
    answers = [sound(each) for each in results] if isinstance(results, list) else []
    if len(answers) != len(names):
        return [_failed("the check returned a different number of results than files") for _ in names]
    return [answer or _failed("the check returned no result") for answer in answers]


def _failed(reason: str) -> Result:
    return {
        "loaded": False,
        "reason": reason,
        "way_out": "orch pull again, with fewer other programs running.",
    }


def _answer(path: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    loaded = bool(here.get("loaded"))
    both = loaded and bool(there.get("loaded"))
    reason, way_out = here.get("reason"), here.get("way_out")
    not_checked = here.get("not_checked") or (there.get("not_checked") if loaded else None)
    if not_checked and loaded:
        reason, way_out = there.get("reason"), there.get("way_out")
    elif not_checked is None and not there.get("loaded") and not there.get("not_checked") and not loaded:
        reason = f"it did not load on the machine either: {there.get('reason')}"
    return {
        "path": path,
        "kind": here.get("kind"),
        "loaded": loaded,
        "equal": bool(here.get("equal")) if both else None,
        "equivalent": bool(here.get("equivalent")) if both else None,
        "reason": reason,
        "way_out": way_out,
        "not_checked": not_checked,
        "predicted": "outputs" in here,
        "method": method(here),
        "note": here.get("note"),
        **_amounts(here),
    }


def _amounts(here: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many arrays were compared, how many numbers they hold, and how many of these are
    infinite or NaN. None for files without arrays of numbers.
    """
    arrays = here.get("tensors") or ()
    if here.get("kind") == "text" or not arrays:
        return {"arrays": None, "values": None, "not_finite": None}
    not_finite = [each["not_finite"] for each in arrays if "not_finite" in each]
    return {
        "arrays": len(arrays),
        "values": min(_MOST_VALUES, sum(math.prod(each["shape"]) for each in arrays)),
        "not_finite": sum(not_finite) if not_finite else None,
    }
