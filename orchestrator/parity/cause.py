"""What probably made two runs differ: differences of environment and code, weighed by stage and size.

A cause named here is suspected; only running again with that one thing changed can confirm it. A mere
difference of versions is never accused: measured, several versions of TensorFlow and NumPy are equal to
the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.parity.ladder import Finding


@dataclass(frozen=True)
class Cause:
    """A sentence that says what is suspected, and one that says what to do."""

    sentence: str
    fix: str


@dataclass(frozen=True)
class Change:
    """One fact that differs. `topic` is what it bears on."""

    topic: str
    words: str
    fix: str


SAME_JOB = ("source", "arguments", "optimizer")
"""Topics in which a difference means that the two runs are not the same job."""

_SEED = "Seed everything at the top of the script: keras.utils.set_random_seed(…)."

_ORDER = (
    "Fix the order of records: wrap glob and listdir in sorted(), give interleave an explicit cycle_length "
    "and shuffle an explicit seed."
)

_VARIABLE_TOPICS = (
    ("CPU_ISA", "isa"),
    ("THREADS", "threads"),
    ("ONEDNN", "onednn"),
    ("DNNL", "onednn"),
    ("DETERMINISTIC", "determinism"),
    ("XLA", "compile"),
    ("VISIBLE_DEVICES", "devices"),
)
"""What a variable bears on, by a part of its name; the first that fits."""

_BY_STAGE = {
    "activation": ("devices", "isa", "onednn", "compile", "threads", "determinism", "environment"),
    "loss": ("devices", "compile", "threads", "isa", "onednn", "determinism", "environment"),
    "gradient": ("devices", "threads", "determinism", "compile", "isa", "onednn", "environment"),
    "update": ("devices", "compile", "threads", "determinism", "isa", "onednn", "environment"),
}


def changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Change, ...]:
    """Every fact of environment.json that acts and differs, versions left out.

    Variables come before what they bring about: they are what one can set.
    """
    if not a or not b:
        return ()
    found = [*_source(a, b), *_variables(a, b), *_settings(a, b), *_threads(a, b), *_hardware(a, b)]
    return tuple(found)


def versions(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The versions that differ, for people; "" where none does."""
    left = {"python": a.get("python"), **a.get("versions", {})}
    right = {"python": b.get("python"), **b.get("versions", {})}
    names = sorted(name for name in {*left, *right} if left.get(name) != right.get(name))
    return ", ".join(f"{name} {left.get(name)} in A and {right.get(name)} in B" for name in names)


def suspect(finding: Finding, found: tuple[Change, ...], *, initial_differs: bool, overall: bool) -> Cause:
    """The most probable cause. `initial_differs`: initial weights differ too. `overall`: see
    ladder.same_records_overall."""
    decisive = next((c for topic in SAME_JOB for c in found if c.topic == topic), None)
    if decisive:
        return Cause(decisive.words, decisive.fix)
    if finding.stage == "batch":
        return _batch(finding, found, initial_differs, overall)
    if finding.stage == "initial":
        return Cause("the random seed differs or is not set", _SEED)
    if finding.kind == "dtype":
        return _pick(found, ("policy",)) or Cause(
            "the two runs compute in different precision",
            "Set the same dtype policy and floatx on both sides.",
        )
    if finding.rounding:
        return _pick(found, _BY_STAGE[finding.stage]) or Cause(
            "operations that are not deterministic, since nothing recorded of the two environments differs",
            "Run it twice on one machine; if those differ too, call "
            "tf.config.experimental.enable_op_determinism().",
        )
    return _pick(found, ("policy", "compile", "devices", "environment")) or Cause(
        "randomness inside the step that no seed fixes (dropout, augmentation, noise)",
        "Seed every random operation; keras.utils.set_random_seed(…) covers Keras layers.",
    )


def _batch(finding: Finding, found: tuple[Change, ...], initial_differs: bool, overall: bool) -> Cause:
    if finding.kind == "dtype":
        return _pick(found, ("policy",)) or Cause(
            "the loader yields another dtype", "Cast in the input pipeline, or share the loader."
        )
    if finding.kind == "shape":
        return Cause(
            "batch size or preprocessing differs", "Use the same arguments and the same data on both sides."
        )
    cores = _pick(found, ("cores",))
    if finding.kind == "order" or overall:
        words = "the same records come in another order (unsorted file names, or an unseeded shuffle)"
        return Cause(f"{words}; {cores.sentence}, on which interleave depends" if cores else words, _ORDER)
    if finding.kind == "some":
        return Cause(
            "some records have other content, in the same order: the files or their preprocessing differ",
            "Compare the data files by their hashes, and share fitted scalers and decoding libraries.",
        )
    if initial_differs:
        return Cause("the random seed differs or is not set: initial weights differ as well", _SEED)
    if finding.gap and finding.gap.relative is not None and finding.gap.relative < 1e-3:
        return Cause(
            "the records were preprocessed in slightly different arithmetic",
            "Share the preprocessing code, libraries for decoding, and fitted scalers.",
        )
    words = "other records (an unseeded shuffle over more data, another order of files, or other data)"
    return Cause(f"{words}; {cores.sentence}, on which interleave depends" if cores else words, _ORDER)


def _pick(found: tuple[Change, ...], topics: tuple[str, ...]) -> Cause | None:
    change = next((c for topic in topics for c in found if c.topic == topic), None)
    return Cause(change.words, change.fix) if change else None


# ---------------------------------------------------------------- facts that differ


def _source(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    left, right = a.get("modules", {}), b.get("modules", {})
    differing = sorted(name for name in {*left, *right} if left.get(name) != right.get(name))
    found = []
    if differing:
        words = f"the code differs: {', '.join(differing[:3])}" + (" and more" if len(differing) > 3 else "")
        found.append(Change("source", words, "Run the same code on both sides."))
    return found + _arguments(a.get("argv") or [], b.get("argv") or [])


def _arguments(a: Sequence[str], b: Sequence[str]) -> list[Change]:
    """Arguments that differ. Paths alone make no other job: they name the same things in other places."""
    if a == b:
        return []
    pairs = [(x, y) for x, y in zip(a, b, strict=False) if x != y]
    paths = len(a) == len(b) and all(_is_path(x) and _is_path(y) for x, y in pairs)
    topic = "paths" if paths else "arguments"
    words = f"the {topic} differ: “{' '.join(a)}” in A, “{' '.join(b)}” in B"
    return [Change(topic, words, "Pass the same arguments.")]


def _is_path(argument: str) -> bool:
    return "/" in argument or "\\" in argument


def _settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    found = []
    if a.get("optimizers") != b.get("optimizers"):
        found.append(Change("optimizer", "the optimizer's settings differ", "Use the same hyper-parameters."))
    for name in ("policy", "floatx", "image_data_format", "backend"):
        found += _one(
            "policy", f"Keras' {name}", a, b, ("keras", name), f"Set the same {name} on both sides."
        )
    left, right = a.get("models", []), b.get("models", [])
    for one, other in zip(left, right, strict=False):
        for name in ("jit_compile", "run_eagerly", "steps_per_execution"):
            if one.get(name) != other.get(name):
                words = f"{name} is {one.get(name)} in A and {other.get(name)} in B"
                found.append(Change("compile", words, f"Pass {name} explicitly to compile()."))
    fix = "Call tf.config.experimental.enable_op_determinism() on both sides or on neither."
    found += _one("determinism", "deterministic operations", a, b, ("tensorflow", "deterministic_ops"), fix)
    for name, words in (
        ("jit", "automatic clustering"),
        ("functions_eager", "eager functions"),
        ("tf32", "TF32"),
    ):
        found += _one("compile", words, a, b, ("tensorflow", name), f"Set {words} alike on both sides.")
    return found


def _threads(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    left, right = _intra(a), _intra(b)
    found = []
    if left != right:
        words = (
            f"an operation uses {left} threads in A and {right} in B, so that sums are taken in another order"
        )
        lower = min(n for n in (left, right) if n) if (left and right) else 1
        found.append(Change("threads", words, f"Set TF_NUM_INTRAOP_THREADS={lower} on both sides."))
    fix = "Give interleave and map explicit parallelism."
    found += _one("cores", "the number of usable cores", a, b, ("cpu", "count"), fix)
    return found


def _intra(facts: Mapping[str, Any]) -> int:
    """Threads within one operation, as TensorFlow resolves them."""
    variable = str(facts.get("environment", {}).get("TF_NUM_INTRAOP_THREADS", ""))
    configured = facts.get("tensorflow", {}).get("intra_op_threads") or 0
    given = configured or (int(variable) if variable.isdigit() else 0)
    return int(given or facts.get("cpu", {}).get("count") or 0)


def _hardware(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    found = []
    left, right = set(a.get("cpu", {}).get("flags", [])), set(b.get("cpu", {}).get("flags", []))
    if left != right:
        words = "the processors differ"
        words += f": A alone has {', '.join(sorted(left - right))}" if left - right else ""
        words += (
            f"{';' if left - right else ':'} B alone has {', '.join(sorted(right - left))}"
            if right - left
            else ""
        )
        fix = "Export ONEDNN_MAX_CPU_ISA=AVX2 (or what both have) on both sides, or rent the same processor."
        found.append(Change("isa", words, fix))
    fix = "Use the same kind of device on both sides."
    found += _one("devices", "the devices that TensorFlow sees", a, b, ("tensorflow", "devices"), fix)
    fix = "Export TF_ENABLE_ONEDNN_OPTS=0 (or 1) on both sides."
    found += _one("onednn", "oneDNN", a, b, ("tensorflow", "onednn"), fix)
    return found


def _variables(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    left, right = a.get("environment", {}), b.get("environment", {})
    found = []
    for name in sorted(n for n in {*left, *right} if left.get(n) != right.get(n)):
        topic = next((topic for part, topic in _VARIABLE_TOPICS if part in name), "environment")
        words = f"{name} is {_shown(left.get(name))} in A and {_shown(right.get(name))} in B"
        found.append(Change(topic, words, f"Export {name} alike on both sides."))
    return found


def _one(
    topic: str, what: str, a: Mapping[str, Any], b: Mapping[str, Any], path: tuple[str, str], fix: str
) -> list[Change]:
    left, right = (side.get(path[0], {}).get(path[1]) for side in (a, b))
    if left == right:
        return []
    return [Change(topic, f"{what}: {_shown(left)} in A, {_shown(right)} in B", fix)]


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
