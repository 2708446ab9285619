"""Suspect a cause from differences of environment and code, weighed by the stage and the size of the
difference.

A cause named here is suspected; only a repeated run with that one thing changed can confirm it. A difference
of versions alone is never suspected: several versions of TensorFlow and NumPy were measured to be bitwise
identical.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model import Subject
from orchestrator.model.outcomes import Stage
from orchestrator.parity.changes import SAME_JOB, Change
from orchestrator.parity.ladder import Finding
from orchestrator.parity.naming import LETTERS, SideNames
from orchestrator.parity.wording import difference


@dataclass(frozen=True)
class Cause:
    """A suspected cause and its remedy, one sentence each. `subjects`: the recorded differences that it is
    about.
    """

    sentence: str
    fix: str
    subjects: tuple[Subject, ...] = ()


_SEED = "Seed everything at the top of the script: keras.utils.set_random_seed(…)."

_SYNC = "Give both sides the same files."

_ORDER = (
    "Fix the order of records: wrap glob and listdir in sorted(), give interleave an explicit cycle_length "
    "and shuffle an explicit seed."
)

_ARITHMETIC = ("devices", "isa", "onednn", "compile", "threads", "determinism", "environment", "cores")

_BY_STAGE = {
    Stage.GRADIENT: ("devices", "threads", "determinism", "compile", "isa", "onednn", "environment", "cores"),
    Stage.UPDATE: ("devices", "compile", "threads", "determinism", "isa", "onednn", "environment", "cores"),
}
"""Topics that can cause different rounding, the most probable first; for other stages _ARITHMETIC."""

_TYPED = ("stdin", "command", "environment")
"""Topics that are set when a run is started."""

_CIRCUMSTANCES = (
    "stdin", "command", "environment", "hashing", "timezone", "locale", "start", "host", "seed", "settings",
    "keras_json", "folder",
)  # fmt: skip
"""Topics of facts that a script may read to decide what it does."""


def suspect(
    finding: Finding,
    found: tuple[Change, ...],
    *,
    initial_differs: bool,
    overall: bool,
    names: SideNames = LETTERS,
) -> Cause:
    """Return the most probable cause. `initial_differs`: the initial weights differ too. `overall`: see
    ladder.same_records_overall.
    """
    decisive = next((c for topic in SAME_JOB for c in found if c.topic == topic), None)
    if decisive:
        told = _pick(found, _TYPED) if decisive.topic in ("optimizer", "loss") else None
        return told or _of(decisive)
    if finding.stage == Stage.FILES:
        return _files(finding, found, names)
    if finding.stage == Stage.BATCH:
        return _batch(finding, found, initial_differs, overall)
    if finding.kind == "dtype":
        return _pick(found, ("policy", "environment")) or Cause(
            "the two runs compute in different precision",
            "Set the same dtype policy and floatx on both sides.",
        )
    if finding.stage == Stage.INITIAL:
        return _pick(
            found,
            (*_TYPED, "hashing", "host", "seed", "data", "start", "settings", "keras_json", "folder"),
        ) or Cause("the random seed differs or is not set", _SEED)
    if finding.rounding:
        return _pick(found, _BY_STAGE.get(finding.stage, _ARITHMETIC)) or Cause(
            "numbers are summed in another order; no recorded difference of the two environments explains it",
            "Record it twice on one machine; if those differ too, call "
            "tf.config.experimental.enable_op_determinism().",
        )
    return _pick(found, ("policy", "compile", "devices", "environment")) or Cause(
        "something inside the step that was not recorded, and may differ from run to run on one machine",
        "Record it twice on one machine: if those two differ as well, seed every random operation; if they "
        "are equal, compare versions and devices of the two sides.",
    )


def _files(finding: Finding, found: tuple[Change, ...], names: SideNames) -> Cause:
    """Return files that differ in content or order. A difference that determines which files are read comes
    first.
    """
    if finding.kind == "order":
        return _pick(found, ("order",)) or Cause(difference(finding, names), _ORDER)
    led = _pick(found, ("environment", "start", "paths")) if finding.kind == "missing" else None
    named = next((c for c in found if c.topic == "data" and c.name == finding.tensor), None)
    chosen = named or next((c for c in found if c.topic == "data"), None)
    cause = _of(chosen) if chosen else Cause(difference(finding, names), _SYNC)
    if led is None:
        return cause
    return Cause(f"{led.sentence}, and so {cause.sentence}", led.fix, led.subjects + cause.subjects)


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
        return _by_cores(words, cores)
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
    return _by_cores(words, cores)


def _by_cores(words: str, cores: Cause | None) -> Cause:
    if cores is None:
        return Cause(words, _ORDER)
    return Cause(f"{words}; {cores.sentence}, on which interleave depends", _ORDER, cores.subjects)


def _of(change: Change) -> Cause:
    return Cause(change.words, change.fix, (change.subject,))


def _pick(found: tuple[Change, ...], topics: tuple[str, ...]) -> Cause | None:
    change = next((c for topic in topics for c in found if c.topic == topic), None)
    return _of(change) if change else None
