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

_ORDER = (
    "Fix the order of records: wrap glob and listdir in sorted(), give interleave an explicit cycle_length "
    "and shuffle an explicit seed."
)

_BY_STAGE = {
    "activation": ("devices", "isa", "onednn", "compile", "threads", "determinism", "environment"),
    "loss": ("devices", "compile", "threads", "isa", "onednn", "determinism", "environment"),
    "gradient": ("devices", "threads", "determinism", "compile", "isa", "onednn", "environment"),
    "update": ("devices", "compile", "threads", "determinism", "isa", "onednn", "environment"),
}


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
        return _pick(found, _BY_STAGE.get(finding.stage, _BY_STAGE["update"])) or Cause(
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
