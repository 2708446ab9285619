"""Values that take precedence over the file: `--set key=value` and, below it, ORCH_SET_… in the environment.

`--set resources.cpus=4`, `--set data.0.source=~/images`; the same by environment is
ORCH_SET_RESOURCES__CPUS=4: two underscores between keys, which are converted to lower case, except names of
variables (ORCH_SET_TRAIN__ENV__SEED=1). A value is read as in YAML without quotes; one that starts with [, {
or a quote is read as YAML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.profile.tree import (
    MAX_DEPTH,
    ListNode,
    MapNode,
    Node,
    Place,
    Problem,
    Refused,
    ScalarNode,
    plain_value,
    read_tree,
    refused_character,
)

PREFIX = "ORCH_SET_"
ENV_PREFIX = f"{PREFIX}TRAIN__ENV"
"""The prefix of ORCH_SET_… variables that set environment variables of the job."""


@dataclass(frozen=True)
class Override:
    """One value from outside the file: its keys, its text if any, and its source."""

    keys: tuple[str, ...]
    text: str | None
    place: Place


def overridden(root: Node, flags: Sequence[str], environ: Mapping[str, str]) -> Node:
    """Return `root` with every override applied, the strongest last. Raises Refused if an override names no
    field.
    """
    if isinstance(root, ScalarNode) and root.value is None:
        root = MapNode(root.place)
    problems: list[Problem] = []
    for override in [*_from_environ(environ), *(_from_flag(flag) for flag in flags)]:
        try:
            _put(root, override)
        except Refused as error:
            problems += error.problems
    if problems:
        raise Refused(problems)
    return root


def _from_environ(environ: Mapping[str, str]) -> Iterator[Override]:
    for name in sorted(environ):
        if name.startswith(PREFIX) and len(name) > len(PREFIX):
            keys = name[len(PREFIX) :].split("__")
            lowered = [key.lower() for key in keys]
            if lowered[:2] == ["train", "env"] and len(keys) > 2:
                lowered[2:] = ["__".join(keys[2:])]
            if lowered == ["retry", "no_capacity"]:  # no shell sets a variable with a hyphen
                lowered = ["retry", "no-capacity"]
            yield Override(tuple(lowered), environ[name], Place(name))


def _from_flag(flag: str) -> Override:
    key, equals, text = flag.partition("=")
    keys = key.strip().replace("[", ".").replace("]", "").split(".")
    return Override(tuple(keys), text if equals else None, Place(f"--set {key.strip()}"))


_SECRET = ("train", "env")


def without_secrets(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the overrides that may be stored: all but those of train.env, whose values may be secrets."""
    return tuple(flag for flag in flags if not _may_be_secret(flag))


def secrets_of(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the overrides that must not be stored."""
    return tuple(flag for flag in flags if _may_be_secret(flag))


def redacted(flags: Sequence[str]) -> list[str]:
    """Return the overrides in their order, with "…" for values that may be secrets."""
    return [f"{name_of(flag)}=…" if _may_be_secret(flag) else flag for flag in flags]


def name_of(flag: str) -> str:
    """Return the key of an override, without its value: train.env.TOKEN."""
    return ".".join(_from_flag(flag).keys)


def of_environment(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the overrides in ORCH_SET_… of `environ`, in the form of flags."""
    return tuple(f"{'.'.join(each.keys)}={each.text}" for each in _from_environ(environ))


def is_set(name: str, flags: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether the overrides, or ORCH_SET_… of `environ`, set the field `name`."""
    given = {".".join(override.keys) for override in _from_environ(environ)} | {name_of(f) for f in flags}
    return covered(name, given)


def covered(name: str, names: Iterable[str]) -> bool:
    """Whether `name` is one of `names`, or inside one: train.env.TOKEN is inside train.env."""
    return any(name == each or name.startswith(f"{each}.") for each in names)


def _may_be_secret(flag: str) -> bool:
    keys = _from_flag(flag).keys
    return keys[: len(_SECRET)] == _SECRET[: len(keys)]


def _put(root: Node, override: Override) -> None:
    if override.text is None:
        raise Refused([Problem(override.place, "expected key=value, e.g. resources.cpus=4")])
    if not all(override.keys) or len(override.keys) > MAX_DEPTH:
        raise Refused(
            [Problem(override.place, "expected keys with a point between them, e.g. resources.cpus")]
        )
    if not isinstance(root, MapNode):
        return
    node: Node = root
    keys = override.keys
    for depth, key in enumerate(keys[:-1]):
        node = _child(node, key, override, keys[: depth + 1], is_list=keys[depth + 1].isdecimal())
    _assign(node, keys[-1], _value(override.text, override.place), override, keys[:-1])


def _child(node: Node, key: str, override: Override, path: tuple[str, ...], *, is_list: bool) -> Node:
    found: Node | None = None
    if isinstance(node, MapNode):
        found = node.items.get(key)
    elif isinstance(node, ListNode) and key.isdecimal() and int(key) < len(node.items):
        found = node.items[int(key)]
    if found is None or (isinstance(found, ScalarNode) and found.value is None):
        found = ListNode(override.place) if is_list else MapNode(override.place)
        _assign(node, key, found, override, path[:-1])
    return found


def _assign(node: Node, key: str, value: Node, override: Override, path: tuple[str, ...]) -> None:
    if isinstance(node, MapNode):
        node.keys[key] = override.place
        node.items[key] = value
    elif isinstance(node, ListNode):
        _assign_item(node, key, value, override, path)
    else:
        holder = ".".join(path)
        raise Refused([Problem(override.place, f"{holder} is one value here and has no keys; set {holder}")])


def _assign_item(node: ListNode, key: str, value: Node, override: Override, path: tuple[str, ...]) -> None:
    if not key.isdecimal() or len(key) > 6 or int(key) > len(node.items):
        count = len(node.items)
        text = f"{'.'.join(path)} is a list of {count}; its next key must be a number from 0 to {count}"
        raise Refused([Problem(override.place, text)])
    node.items[int(key) :] = [value, *node.items[int(key) + 1 :]]


def _value(text: str, place: Place) -> Node:
    text = text.strip()
    if (odd := refused_character(text)) is not None:
        raise Refused([Problem(place, f"the value holds the character U+{ord(odd):04X}")])
    if text[:1] in ("[", "{", '"', "'"):
        return _moved(_read(text, place), place)
    return ScalarNode(text, plain_value(text), place)


def _read(text: str, place: Place) -> Node:
    try:
        return read_tree(text.encode("utf-8", "replace"), str(place))
    except Refused as error:
        raise Refused([Problem(place, problem.text) for problem in error.problems]) from None


def _moved(node: Node, place: Place) -> Node:
    if isinstance(node, ScalarNode):
        return ScalarNode(node.text, node.value, place)
    if isinstance(node, ListNode):
        return ListNode(place, [_moved(item, place) for item in node.items])
    items = {key: _moved(item, place) for key, item in node.items.items()}
    return MapNode(place, items, dict.fromkeys(items, place))
