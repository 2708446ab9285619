"""The differences between the facts of two recorded runs, one value each. Pure.

Versions are left out: several versions of TensorFlow and NumPy were measured to be bitwise identical.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.model import Subject
from orchestrator.parity.naming import LETTERS, SideNames
from orchestrator.parity.opened import is_cache, is_setting
from orchestrator.parity.wording import both_words, setting_words, value_words

Facts = Mapping[str, Any]

_Sides = tuple[Facts, Facts, SideNames]

SAME_JOB = ("source", "arguments", "keras", "optimizer", "loss")
"""Topics in which a difference means that the two runs are not the same job."""


@dataclass(frozen=True)
class Change:
    """One fact that differs. `topic`: what it affects; `name`: which fact; `a`, `b`: its values. `variable`:
    whether it is an environment variable, of that name.
    """

    topic: str
    words: str
    fix: str
    name: str = ""
    a: Any = None
    b: Any = None
    variable: bool = False

    @property
    def subject(self) -> Subject:
        """What differs, independent of values and wording."""
        return Subject(self.topic, self.name)


_VARIABLE_TOPICS = (
    ("TF_USE_LEGACY_KERAS", "keras"),
    ("KERAS_BACKEND", "keras"),
    ("CPU_ISA", "isa"),
    ("CORETYPE", "isa"),
    ("CPU_FEATURES", "isa"),
    ("THREADS", "threads"),
    ("ONEDNN", "onednn"),
    ("DNNL", "onednn"),
    ("DETERMINISTIC", "determinism"),
    ("TF32", "compile"),
    ("XLA", "compile"),
    ("VISIBLE_DEVICES", "devices"),
    ("PYTHONHASHSEED", "hashing"),
    ("LC_", "locale"),
    ("LANG", "locale"),
    ("PYTHONUTF8", "locale"),
)
"""Topic of a variable, by a part of its name; the first match counts."""


def changes(a: Facts, b: Facts, names: SideNames = LETTERS) -> tuple[Change, ...]:
    """Return every difference in environment.json that can affect results, without versions, worded with the
    sides' `names`.

    Variables come before the settings that they determine, because a user can set them.
    """
    if not a or not b:
        return ()
    parts = (_source, _arguments, _files, _variables, _settings, _threads, _hardware, _surroundings)
    return tuple(change for part in parts for change in part(a, b, names))


def versions(a: Facts, b: Facts, sides: SideNames = LETTERS) -> str:
    """Return the versions that differ, for people; "" if none does."""
    left = {"python": a.get("python"), **a.get("versions", {})}
    right = {"python": b.get("python"), **b.get("versions", {})}
    names = sorted(name for name in {*left, *right} if left.get(name) != right.get(name))
    return ", ".join(
        f"{name} {left.get(name)} {sides.in_a} and {right.get(name)} {sides.in_b}" for name in names
    )


# ---------------------------------------------------------------- code, arguments, data


def _source(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    left, right = a.get("modules", {}), b.get("modules", {})
    differing = sorted(name for name in {*left, *right} if left.get(name) != right.get(name))
    if differing:
        words = f"the code differs: {_some(differing)}"
        if another_program(a, b):
            words = f"the program is {_program(a)} {names.in_a} and {_program(b)} {names.in_b}"
        one, other = ({name: side.get(name) for name in differing} for side in (left, right))
        fix = f"Run the same code on both sides: decide on one {_some(differing)}, and sync."
        yield Change("source", words, fix, "modules", one, other)


def another_program(mine: Facts, other: Facts) -> str | None:
    """Return the file name of the other side's program, if both have one and the names differ."""
    theirs = _program(other)
    return theirs if theirs and _program(mine) and theirs != _program(mine) else None


def _program(facts: Facts) -> str:
    return str((facts.get("program") or {}).get("name") or "")


def _arguments(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    """Return arguments that differ, except paths: they name the same things at different places."""
    yield from _command(a, b, names)
    left, right = list(a.get("argv") or []), list(b.get("argv") or [])
    if left == right:
        return
    pairs = [(x, y) for x, y in zip(left, right, strict=False) if x != y]
    paths = len(left) == len(right) and all(_is_path(x) and _is_path(y) for x, y in pairs)
    topic = "paths" if paths else "arguments"
    one, other = _apart(left, right)
    words = f"the {topic} differ: {one} {names.in_a}, {other} {names.in_b}"
    yield Change(topic, words, f"Pass the same arguments: {one}, or {other}, to both.", "argv", left, right)


def _command(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    """Return the difference of the command lines beyond program and arguments: a wrapper, variables before
    it, or a program or data on standard input.
    """
    given = a.get("stdin"), b.get("stdin")
    if given[0] != given[1]:
        side = names.in_a if given[0] else names.in_b
        words = "standard input is not the same" if all(given) else f"standard input is given {side} alone"
        yield Change("stdin", words, "Give both runs the same standard input.", "stdin", *given)
    left, right = a.get("command"), b.get("command")
    if left and right and left != right:
        one, other = _apart(left, right)
        words = f"the command differs: {one} {names.in_a}, {other} {names.in_b}"
        yield Change("command", words, "Type the same command on both sides.", "command", left, right)


def _apart(a: Sequence[str], b: Sequence[str]) -> tuple[str, str]:
    """Return the parts in which two command lines differ, each with the option to which the value belongs."""
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    if start and a[start - 1].startswith("-") and "=" not in a[start - 1]:
        start -= 1
    left, right = (" ".join(words[start : len(words) - end]) for words in (a, b))
    return (f"“{left}”" if left else "nothing"), (f"“{right}”" if right else "nothing")


def _is_path(argument: str) -> bool:
    return "/" in argument or "\\" in argument


def _files(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    left, right = _read_files(a), _read_files(b)
    both = [name for name in left if name in right]
    for name in both:
        one, other = left[name], right[name]
        if (one.get("sha256"), one.get("bytes")) != (other.get("sha256"), other.get("bytes")):
            words = f"the file {name} is not the same"
            fix = _copied(name, one, other, names)
            yield Change(_file_topic(name, one, other), words, fix, name, one, other)
    for name in [*left, *right]:
        if (name in left) != (name in right):
            side = names.in_a if name in left else names.in_b
            words = f"the file {name} is read {side} alone"
            fix = f"Put {name} on both sides or on neither, and let the script fail where a file is missing."
            topic = _file_topic(name, left.get(name), right.get(name))
            yield Change(topic, words, fix, name, left.get(name), right.get(name))
    both = [name for name in both if not is_cache(left[name])]
    order = [name for name in right if name in both]
    if both != order:
        words = f"files are opened in another order: {_some(both)} {names.in_a}, {_some(order)} {names.in_b}"
        fix = "Wrap glob, listdir and iterdir in sorted()."
        yield Change("order", words, fix, "files", both, order)


def _file_topic(name: str, *entries: Mapping[str, Any] | None) -> str:
    """Return the topic of a file: hidden files in the home folder are settings, such as those of Keras; files
    that libraries create for themselves are caches, not data.
    """
    if any(entry and is_cache(entry) for entry in entries):
        return "cache"
    if name.startswith("~/.keras/keras.json"):
        return "keras_json"
    settings = [entry for entry in entries if entry and is_setting({**entry, "name": name})]
    return "settings" if settings else "data"


def _copied(name: str, a: Mapping[str, Any], b: Mapping[str, Any], names: SideNames) -> str:
    left, right = a.get("path"), b.get("path")
    if left and right and left != right:
        sides = f"{left} {names.of_a} or {right} {names.of_b}"
        return f"Decide which is right, {sides}, and copy it over the other."
    return f"Decide which {name} is right, and copy it to the other side."


def _read_files(facts: Facts) -> dict[str, Mapping[str, Any]]:
    """Return the files that the program read and did not create, by name, in the order of first opening."""
    listed = (facts.get("files") or {}).get("list") or []
    return {entry["name"]: entry for entry in listed if not entry.get("made")}


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


# ---------------------------------------------------------------- settings


def _variables(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    left = {**a.get("variables", {}), **a.get("environment", {})}
    right = {**b.get("variables", {}), **b.get("environment", {})}
    for name in sorted(n for n in {*left, *right} if left.get(n) != right.get(n)):
        topic = next((topic for part, topic in _VARIABLE_TOPICS if part in name), "environment")
        topic = "timezone" if name == "TZ" else topic
        if topic == "environment" and all(is_path_value(side.get(name)) for side in (left, right)):
            topic = "paths"
        words = both_words(f"{name} is", value_words(left.get(name)), value_words(right.get(name)), names)
        fix = _alike(name, left.get(name), right.get(name), names)
        yield Change(topic, words, fix, name, left.get(name), right.get(name), variable=True)


def is_path_value(value: Any) -> bool:
    """Return whether a variable's value is a path: then its content is examined before it is suspected."""
    return isinstance(value, str) and value.startswith(("/", "./", "../", "~"))


def _alike(name: str, a: Any, b: Any, names: SideNames) -> str:
    """Return the advice that makes a variable equal on both sides."""
    if a is None or b is None:
        value, has, lacks = (b, names.in_b, names.in_a) if a is None else (a, names.in_a, names.in_b)
        return f"Unset {name} {has}, or export {name}={shlex.quote(str(value))} {lacks} too."
    return f"Export {name}={shlex.quote(str(a))} on both sides (or {shlex.quote(str(b))} on both)."


def _settings(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    if a.get("optimizers") != b.get("optimizers"):
        words = f"the optimizer's settings differ{_which(a.get('optimizers'), b.get('optimizers'), names)}"
        yield Change("optimizer", words, "Use the same hyper-parameters.", "optimizers")
    if _losses(a) != _losses(b):
        words = "the loss or its weights differ"
        yield Change("loss", words, "Use the same loss.", "losses")
    for name in ("policy", "floatx", "image_data_format", "backend"):
        fix = f"Set the same {name} on both sides."
        yield from _one("policy", f"Keras' {name}", (a, b, names), ("keras", name), fix)
    left, right = a.get("models", []), b.get("models", [])
    for one, other in zip(left, right, strict=False):
        for name in ("jit_compile", "run_eagerly", "steps_per_execution"):
            if one.get(name) != other.get(name):
                words = both_words(f"{name} is", one.get(name), other.get(name), names)
                fix = f"Pass {name} explicitly to compile()."
                yield Change("compile", words, fix, name, one.get(name), other.get(name))
    fix = "Call tf.config.experimental.enable_op_determinism() on both sides or on neither."
    yield from _one(
        "determinism", "deterministic operations", (a, b, names), ("tensorflow", "deterministic_ops"), fix
    )
    for name, said in (
        ("jit", "automatic clustering"),
        ("functions_eager", "eager functions"),
        ("tf32", "TF32"),
    ):
        yield from _one(
            "compile", said, (a, b, names), ("tensorflow", name), f"Set {said} alike on both sides."
        )
    fix = "Use the same tf.distribute strategy and number of replicas, or rescale the batch."
    yield from _one("compile", "replicas", (a, b, names), ("strategy", "replicas"), fix)
    yield from _seeds(a, b, names)


def _seeds(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    """Return the seed of the generators before the first step, as Keras or TensorFlow store it."""
    left, right = a.get("rng") or {}, b.get("rng") or {}
    for name in ("keras_seed", "tensorflow_seed"):
        one, other = left.get(name), right.get(name)
        if left and right and one != other:
            words = both_words("the seed is", value_words(one), value_words(other), names)
            fix = "Use one constant on both sides: keras.utils.set_random_seed(1)."
            yield Change("seed", words, fix, "seed", one, other)
            return


def _losses(facts: Facts) -> tuple[Any, Any]:
    compiled = [{k: v for k, v in entry.items() if k != "name"} for entry in facts.get("compiled") or []]
    return compiled, facts.get("losses")


def _which(a: Any, b: Any, names: SideNames) -> str:
    """Describe the first difference between two lists of optimizer settings."""
    for one, other in zip(a or [], b or [], strict=False):
        if one.get("class") != other.get("class"):
            return f": {one.get('class')} {names.in_a}, {other.get('class')} {names.in_b}"
        left, right = one.get("config") or {}, other.get("config") or {}
        for name in left:
            if left.get(name) != right.get(name):
                values = setting_words(left.get(name), right.get(name))
                return ": " + both_words(f"{name} is", *values, names)
    return ""


# ---------------------------------------------------------------- machine


def _threads(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    left, right = intra_op(a), intra_op(b)
    if left != right:
        uses = f"an operation uses {left} threads {names.in_a} and {right} {names.in_b}"
        words = f"{uses}, so that sums are taken in another order"
        lower = min(n for n in (left, right) if n) if (left and right) else 1
        fix = f"Set TF_NUM_INTRAOP_THREADS={lower} on both sides."
        if any((side.get("tensorflow") or {}).get("intra_op_threads") for side in (a, b)):
            fix = f"Call tf.config.threading.set_intra_op_parallelism_threads({lower}) on both sides."
        yield Change("threads", words, fix, "intra_op", left, right)
    fix = "Give interleave and map explicit parallelism."
    yield from _one("cores", "the number of usable cores", (a, b, names), ("cpu", "count"), fix)


def intra_op(facts: Facts) -> int:
    """Return the threads within one operation as TensorFlow resolves them; 0 if unknown, or on JAX."""
    if (facts.get("keras") or {}).get("backend", "tensorflow") != "tensorflow":
        return 0
    resolved = (facts.get("threads") or {}).get("intra")
    if resolved:
        return int(resolved)
    variable = str(facts.get("environment", {}).get("TF_NUM_INTRAOP_THREADS", ""))
    configured = facts.get("tensorflow", {}).get("intra_op_threads") or 0
    given = configured or (int(variable) if variable.isdigit() else 0)
    return int(given or facts.get("cpu", {}).get("count") or 0)


def _hardware(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    left, right = set(a.get("cpu", {}).get("flags", [])), set(b.get("cpu", {}).get("flags", []))
    if left != right:
        only = [
            f"{side} alone has {', '.join(sorted(more))}"
            for side, more in ((names.a, left - right), (names.b, right - left))
            if more
        ]
        words = f"the processors differ: {'; '.join(only)}"
        fix = "Export ONEDNN_MAX_CPU_ISA=AVX2 (or what both have) on both sides, or rent the same processor."
        yield Change("isa", words, fix, "flags", sorted(left), sorted(right))
    fix = "Use the same kind of device on both sides."
    yield from _one(
        "devices", "the devices that TensorFlow sees", (a, b, names), ("tensorflow", "devices"), fix
    )
    fix = "Export TF_ENABLE_ONEDNN_OPTS=0 (or 1) on both sides."
    yield from _one("onednn", "oneDNN", (a, b, names), ("tensorflow", "onednn"), fix)


def _surroundings(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    fix = "Export LC_ALL=C.UTF-8 on both sides, and open files with encoding=."
    for name, said in (
        ("categories", "the locale"),
        ("decimal_point", "the decimal point"),
        ("preferred_encoding", "the encoding of text files"),
    ):
        yield from _one("locale", said, (a, b, names), ("locale", name), fix)
    fix = "Export TZ=UTC on both sides, and parse times with their zone."
    yield from _one("timezone", "the offsets from UTC", (a, b, names), ("timezone", "utc_offsets"), fix)
    yield from _host(a.get("host") or {}, b.get("host") or {}, names)
    left, right = a.get("start") or {}, b.get("start") or {}
    if left and right and left["in"] != right["in"]:
        started = f"as {left['as']} {names.in_a} and as {right['as']} {names.in_b}"
        words = f"the program is started from another folder: {started}"
        fix = (
            "Start it from the same folder on both sides, or let it find its files relative to itself: "
            "Path(__file__).parent."
        )
        yield Change("start", words, fix, "start", left["in"], right["in"])
    left, right = a.get("cwd"), b.get("cwd")
    if left and right and left != right:
        words = both_words("the working folder's path is", left, right, names)
        fix = "Derive nothing (no seed, no choice of data) from the folder's name or path."
        yield Change("folder", words, fix, "cwd", left, right)


def _host(a: Facts, b: Facts, names: SideNames) -> Iterator[Change]:
    """Return the host name as a difference only if the program reads it: names usually differ."""
    left, right = a.get("name"), b.get("name")
    if left != right and left and right and (a.get("asked") or b.get("asked")):
        words = both_words("the computer's name, which the code reads, is", left, right, names)
        fix = "Derive nothing (no seed, no batch, no path) from the computer's name: pass it as an argument."
        yield Change("host", words, fix, "host", left, right)


def _one(topic: str, what: str, sides: _Sides, path: tuple[str, str], fix: str) -> Iterator[Change]:
    a, b, names = sides
    left, right = ((side.get(path[0]) or {}).get(path[1]) for side in (a, b))
    known = all((side.get(path[0]) or {}) for side in (a, b))
    if left != right and known:
        words = f"{what}: {value_words(left)} {names.in_a}, {value_words(right)} {names.in_b}"
        yield Change(topic, words, fix, path[1], left, right)
