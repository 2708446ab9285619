"""What probably made two runs differ: differences of environment and code, weighed by stage and size.

A cause named here is suspected; only running again with that one thing changed can confirm it. A mere
difference of versions is never accused: measured, several versions of TensorFlow and NumPy are equal to
the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.parity.changes import SAME_JOB, Change
from orchestrator.parity.ladder import Finding


@dataclass(frozen=True)
class Cause:
    """A sentence that says what is suspected, and one that says what to do."""

    sentence: str
    fix: str


_SEED = "Seed everything at the top of the script: keras.utils.set_random_seed(…)."

_SYNC = "Give both sides the same files."

_ORDER = (
    "Fix the order of records: wrap glob and listdir in sorted(), give interleave an explicit cycle_length "
    "and shuffle an explicit seed."
)

_ARITHMETIC = ("devices", "isa", "onednn", "compile", "threads", "determinism", "environment", "cores")

_BY_STAGE = {
    "gradient": ("devices", "threads", "determinism", "compile", "isa", "onednn", "environment", "cores"),
    "update": ("devices", "compile", "threads", "determinism", "isa", "onednn", "environment", "cores"),
}
"""What can round differently, the most probable first; elsewhere as in _ARITHMETIC."""

_TYPED = ("stdin", "command", "environment")
"""Subjects that are set when a run is started."""

_CIRCUMSTANCES = (
    "stdin", "command", "environment", "hashing", "timezone", "locale", "start", "host", "seed", "settings",
    "keras_json", "folder",
)  # fmt: skip
"""What a script may read to decide what it does."""


def suspect(finding: Finding, found: tuple[Change, ...], *, initial_differs: bool, overall: bool) -> Cause:
    """The most probable cause. `initial_differs`: initial weights differ too. `overall`: see
    ladder.same_records_overall."""
    decisive = next((c for topic in SAME_JOB for c in found if c.topic == topic), None)
    if decisive:
        told = _pick(found, _TYPED) if decisive.topic in ("optimizer", "loss") else None
        return told or Cause(decisive.words, decisive.fix)
    if finding.stage == "files":
        return _files(finding, found)
    if finding.stage == "batch":
        return _batch(finding, found, initial_differs, overall)
    if finding.kind == "dtype":
        return _pick(found, ("policy", "environment")) or Cause(
            "the two runs compute in different precision",
            "Set the same dtype policy and floatx on both sides.",
        )
    if finding.stage == "initial":
        return _pick(
            found,
            (*_TYPED, "hashing", "host", "seed", "data", "start", "settings", "keras_json", "folder"),
        ) or Cause("the random seed differs or is not set", _SEED)
    if finding.rounding:
        return _pick(found, _BY_STAGE.get(finding.stage, _ARITHMETIC)) or Cause(
            "another order of sums; nothing that was recorded of the two environments explains it",
            "Record it twice on one machine; if those differ too, call "
            "tf.config.experimental.enable_op_determinism().",
        )
    return _pick(found, ("policy", "compile", "devices", "environment")) or Cause(
        "something inside the step that was not recorded, and may not be the same twice on one machine",
        "Record it twice on one machine: if those two differ as well, seed every random operation; if they "
        "are equal, compare versions and devices of the two sides.",
    )


def _files(finding: Finding, found: tuple[Change, ...]) -> Cause:
    """Files that differ, in content or in order: what led to them is named before they are."""
    if finding.kind == "order":
        return _pick(found, ("order",)) or Cause(finding.detail, _ORDER)
    led = _pick(found, ("environment", "start", "paths")) if finding.kind == "missing" else None
    named = next((c for c in found if c.topic == "data" and c.name == finding.tensor), None)
    chosen = named or next((c for c in found if c.topic == "data"), None)
    cause = Cause(chosen.words, chosen.fix) if chosen else Cause(finding.detail, _SYNC)
    return Cause(f"{led.sentence}, and so {cause.sentence}", led.fix) if led else cause


def _batch(finding: Finding, found: tuple[Change, ...], initial_differs: bool, overall: bool) -> Cause:
    if finding.kind == "dtype":
        return _pick(found, ("policy",)) or Cause(
            "the loader yields another dtype", "Cast in the input pipeline, or share the loader."
        )
    if finding.kind == "shape":
        return _pick(found, (*_CIRCUMSTANCES, "cores")) or Cause(
            "batch size or preprocessing differs", "Use the same arguments and the same data on both sides."
        )
    told = _pick(found, _CIRCUMSTANCES)
    if told:
        return told
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
