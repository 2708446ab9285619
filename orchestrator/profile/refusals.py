"""Convert pydantic's errors to sentences with places: what was expected, and the nearest valid key."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.profile.document import SECTIONS
from orchestrator.profile.tree import ListNode, MapNode, Node, Place, Problem
from orchestrator.profile.units import describe
from orchestrator.profile.values import nearest

Loc = Sequence[str | int]

_EXAMPLES = {
    "version": "version: 1",
    "name": "name: my-project",
    "cloud": "cloud: local",
    "train": "train: {command: python train.py}",
    "command": "command: python train.py",
    "source": "source: data",
}
_OTHER_WORDS = {
    "gpu": "resources.accelerator",
    "gpus": "resources.accelerator",
    "accelerators": "resources.accelerator",
    "vcpus": "resources.cpus",
    "ram": "resources.memory",
    "disk_size": "resources.disk",
    "use_spot": "resources.spot",
    "preemptible": "resources.spot",
    "provider": "cloud",
    "timeout": "max_duration",
    "retries": "retry",
    "max_retries": "retry.interruption",
    "max_restarts_on_errors": "retry.error",
    "no_capacity": "retry.no-capacity",
    "idle_minutes_to_autostop": "idle_duration",
    "workdir": "code.path",
    "file_mounts": "data",
    "command": "train.command",
    "notifications": "notify",
    "tracking": "mlflow",
    "tracking_uri": "mlflow.uri",
    "run": "train.command",
    "cmd": "train.command",
    "script": "train.command",
    "envs": "train.env",
    "environment": "train.env",
    "artifacts": "train.outputs",
    "requirements": "stack.lock",
    "lockfile": "stack.lock",
    "interpreter": "stack.python",
    "exclude": "code.ignore",
}


def problems_of(error: ValidationError, root: Node) -> list[Problem]:
    """Return every error at its key or value in `root`: unknown keys first, then in the order of the text.

    A misspelt key is reported once, not also as missing.
    """
    details = error.errors(include_url=False)
    meant = {_key_meant(detail["loc"]) for detail in details if detail["type"] == "extra_forbidden"}
    found = [_problem(detail, root) for detail in details if not _follows(detail, meant)]
    return sorted(found, key=lambda problem: problem.order)


def _follows(detail: ErrorDetails, meant: set[str | None]) -> bool:
    """Whether a key is missing because it, or a key below it, is misspelt."""
    lacking = dotted(detail["loc"])
    below = (f"{lacking}.", f"{lacking}[")
    return detail["type"] == "missing" and any(
        key is not None and (key == lacking or key.startswith(below)) for key in meant
    )


def dotted(loc: Loc) -> str:
    """Return data[0].source for ("data", 0, "source")."""
    text = ""
    for key in loc:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def place_of_value(root: Node, loc: Loc) -> Place:
    """Return the place of the value at `loc`, or of the nearest value around it."""
    return _walk(root, loc)[-1][1].place


def place_of_key(root: Node, loc: Loc) -> Place:
    """Return the place of the key at `loc`; of the key around it if absent, or the start of the text."""
    return _walk(root, loc)[-1][0]


def _walk(root: Node, loc: Loc) -> list[tuple[Place, Node]]:
    """Return (place of key, value) from the root to `loc`, as far as it exists."""
    path = [(root.place, root)]
    for key in loc:
        node = path[-1][1]
        if isinstance(node, MapNode) and key in node.items:
            path.append((node.keys[str(key)], node.items[str(key)]))
        elif isinstance(node, ListNode) and isinstance(key, int) and key < len(node.items):
            path.append((node.items[key].place, node.items[key]))
        else:
            break
    return path


def _problem(detail: ErrorDetails, root: Node) -> Problem:
    loc, kind = detail["loc"], detail["type"]
    if loc[-1:] == ("[key]",):
        return Problem(place_of_key(root, loc[:-1]), f"{dotted(loc[:-1])}: {_reason(detail)}")
    if kind == "extra_forbidden":
        return Problem(place_of_key(root, loc), _unknown_key(loc), is_cause=True)
    if kind == "missing":
        example = _EXAMPLES.get(str(loc[-1]), "")
        return Problem(place_of_key(root, loc), f"{dotted(loc)} is missing; write e.g. {example}")
    text = _reason(detail)
    return Problem(place_of_value(root, loc), f"{dotted(loc)}: {text}" if loc else text)


def _reason(detail: ErrorDetails) -> str:
    kind, found = detail["type"], describe(detail["input"])
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "model_type":
        return f"expected a mapping of {', '.join(_keys(detail['loc']))}; found {found}"
    if kind == "tuple_type":
        return f"expected a list, each entry after '- '; found {found}"
    if kind == "dict_type":
        return f"expected a mapping of names to values; found {found}"
    return f"{detail['msg']}; found {found}"


def _keys(loc: Loc) -> list[str]:
    section = SECTIONS.get(tuple("*" if isinstance(key, int) else key for key in loc))
    return list(section.written_keys()) if section else []


def _unknown_key(loc: Loc) -> str:
    *around, key = loc
    word, section = str(key), dotted(around)
    shown = word if len(word) <= 60 else word[:57] + "…"
    text = f"unknown key '{shown}'" + (f" in {section}" if around else "")
    if meant := _key_meant(loc):
        return f"{text}; did you mean {meant.removeprefix(f'{section}.')}?"
    return f"{text}; the keys here are {', '.join(_keys(around))}"


def _key_meant(loc: Loc) -> str | None:
    """Return the full key, such as train.command, for which an unknown one was probably written."""
    *around, key = loc
    word = str(key)
    if other := _OTHER_WORDS.get(word):
        return other
    for keys, model in SECTIONS.items():
        if word in model.written_keys():
            return dotted([*keys, word]).replace(".*", "[0]")
    near = nearest(word, _keys(around))
    return dotted([*around, near]) if near else None
