"""Compare two recordings stage by stage and find the first stage and tensor that differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.model.outcomes import Stage
from orchestrator.parity.numbers import Gap, gap
from orchestrator.parity.opened import FilesGap, files_gap
from orchestrator.parity.recording import STAGES, LightStep, Recording, Records, Step, Tensor

ROUNDING = {"float64": 1e-13, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Relative L2 differences up to which a difference counts as rounding, by dtype of the tensor."""

ROUGH = 1 << 15
"""Maximum elements that are compared in each further tensor of the first differing stage."""


@dataclass(frozen=True)
class Values:
    """A property that differs: its values in A and in B."""

    a: str
    b: str


@dataclass(frozen=True)
class Alone:
    """A tensor that only `side` ("A" or "B") has."""

    name: str
    side: str


@dataclass(frozen=True)
class Fingerprints:
    """Fingerprints of `step` that differ. `apart`: the relative difference of the norms; 0 if they are
    equal or not numbers.
    """

    step: int
    apart: float


@dataclass(frozen=True)
class RecordsGap:
    """How the records of two batches differ; `kind` as in Finding: order, some or content.

    `equal` of the `count_seen` compared records are equal at the same position (some), or at any (content).
    `count` is None if the single records are not known.
    """

    kind: str
    count: int | None = None
    count_seen: int = 0
    equal: int = 0


Detail = Values | Alone | Fingerprints | RecordsGap | FilesGap


@dataclass(frozen=True)
class Finding:
    """The first difference. `kind`: dtype, shape, order, some (records), content, missing, value, or light
    (fingerprints differ, so its size is not known).

    `stage` is one of recording.STAGES. If it is FILES, `tensor` is the file, and `shows` the difference of
    the batch or initial weights in which it first appears. `tensor` is the first that differs, and `others`
    the number of further ones in that stage and step; `stage_relative` is the relative L2 difference of the
    whole stage, and `rounding` whether every difference in it has the size of rounding. `detail` is what
    differs besides the numbers; parity.wording describes it.
    """

    step: int
    stage: Stage
    tensor: str
    kind: str
    dtype: str
    gap: Gap | None
    others: int
    stage_relative: float | None
    rounding: bool
    detail: Detail | None
    shows: Finding | None = None


@dataclass(frozen=True)
class Comparison:
    """The result: the first difference if any, tensors compared, steps compared in full, stages compared in
    these, and the number of further steps whose fingerprints were compared.
    """

    finding: Finding | None
    compared: int
    steps: int
    stages: frozenset[Stage]
    light: int = 0


def compare_stages(a: Recording, b: Recording) -> Comparison:
    """Compare the steps that both have, in order; stop at the first stage that differs.

    Files come first, but count only if what depends on them differs: a file without an effect on the compared
    steps is no divergence.
    """
    outcome = _full(a, b)
    if outcome.finding:
        return replace(outcome, finding=_from_files(a, b, outcome.finding))
    if len(a.steps) != len(b.steps):
        return outcome
    known = {(t.stage, t.name): t.dtype for step in a.steps for t in step.tensors}
    for count, (left, right) in enumerate(zip(a.light, b.light, strict=False), 1):
        finding = _light_difference(left, right, known)
        if finding:
            return replace(outcome, finding=_from_files(a, b, finding), light=count)
    return replace(outcome, light=min(len(a.light), len(b.light)))


def _from_files(a: Recording, b: Recording, finding: Finding) -> Finding:
    """Return the file difference if the finding may come from it, else the finding."""
    found = files_gap(a.environment, b.environment) if finding.stage in (Stage.BATCH, Stage.INITIAL) else None
    if found is None or (finding.stage == Stage.INITIAL and found.kind != "content"):
        return finding
    return Finding(
        finding.step,
        Stage.FILES,
        found.name,
        found.kind,
        "",
        None,
        found.others,
        None,
        False,
        found,
        finding,
    )


def _light_difference(a: LightStep, b: LightStep, dtypes: Mapping[tuple[Stage, str], str]) -> Finding | None:
    differing = [key for key in a.sums if key in b.sums and a.sums[key] != b.sums[key]]
    if not differing:
        return None
    stage = min((key[0] for key in differing), key=STAGES.index)
    names = [name for kind, name in differing if kind == stage]
    names = names[::-1] if stage == Stage.GRADIENT else names
    apart = [_apart(a.norms.get((stage, name)), b.norms.get((stage, name))) for name in names]
    limits = [ROUNDING.get(dtypes.get((stage, name), "float32"), 0.0) for name in names]
    rounding = stage != Stage.BATCH and all(x <= most for x, most in zip(apart, limits, strict=True))
    detail = Fingerprints(a.number, apart[0] if 0 < apart[0] < math.inf else 0.0)
    dtype = dtypes.get((stage, names[0]), "")
    return Finding(a.number, stage, names[0], "light", dtype, None, len(names) - 1, None, rounding, detail)


def _apart(a: float | None, b: float | None) -> float:
    """Return the relative difference of two norms; infinite if one is not a number."""
    if a is None or b is None:
        return math.inf
    return abs(a - b) / max(a, b) if max(a, b) else 0.0


def _full(a: Recording, b: Recording) -> Comparison:
    compared, stages = 0, set[Stage]()
    pairs = list(zip(a.steps, b.steps, strict=False))
    for left, right in pairs:
        for stage, names in _stages(left, right):
            compared += len(names)
            finding = _difference(left, right, stage, names)
            if names:
                stages.add(stage)
            if finding:
                return Comparison(finding, compared, left.number, frozenset(stages))
    return Comparison(None, compared, len(pairs), frozenset(stages))


def _stages(a: Step, b: Step) -> Iterator[tuple[Stage, list[str]]]:
    """Yield each stage with the tensor names that both sides have, in the order in which an error would
    spread.
    """
    for stage in STAGES:
        known = b.stage(stage)
        names = [name for name in a.stage(stage) if name in known]
        yield stage, names[::-1] if stage == Stage.GRADIENT else names


def _difference(a: Step, b: Step, stage: Stage, names: Sequence[str]) -> Finding | None:
    left, right = a.stage(stage), b.stage(stage)
    missing = _missing(a, b, stage)
    differing = [name for name in names if not left[name].equals(right[name])]
    if stage == Stage.INITIAL:
        differing = [name for name in differing if _made(left[name]) and _made(right[name])]
    if differing:
        return _finding(a, b, stage, [(left[name], right[name]) for name in differing])
    if missing and left and right:
        name, side = missing
        return Finding(a.number, stage, name, "missing", "", None, 0, None, False, Alone(name, side))
    return None


def _made(tensor: Tensor) -> bool:
    """Return whether a variable had a value when it was read: the optimizer may create its variables within
    the first step.
    """
    return 0 not in tensor.shape


def _missing(a: Step, b: Step, stage: Stage) -> tuple[str, str] | None:
    """Return a tensor that only one side has, unless the other could not read it."""
    left, right = a.stage(stage), b.stage(stage)
    for have, lack, side, unread in ((left, right, "A", b.unread), (right, left, "B", a.unread)):
        for name in have:
            if name not in lack and f"{stage}/{name.split('#')[0]}" not in unread:
                return name, side
    return None


def _finding(a: Step, b: Step, stage: Stage, pairs: Sequence[tuple[Tensor, Tensor]]) -> Finding:
    left, right = pairs[0]
    gaps = [gap(left, right), *(gap(x, y, ROUGH) for x, y in pairs[1:])]
    first, others = gaps[0], len(pairs) - 1
    kind, detail = _kind(a, b, left, right)
    relative = overall_relative(gaps)
    rounding = kind == "value" and is_rounding(pairs, gaps, relative)
    return Finding(a.number, stage, left.name, kind, left.dtype, first, others, relative, rounding, detail)


def _kind(a: Step, b: Step, left: Tensor, right: Tensor) -> tuple[str, Detail | None]:
    if left.dtype != right.dtype:
        return "dtype", Values(left.dtype, right.dtype)
    if left.shape != right.shape:
        return "shape", Values(f"shape {list(left.shape)}", str(list(right.shape)))
    if left.stage == Stage.BATCH:
        found = _records_gap(a.records.get(_group(left)), b.records.get(_group(right)))
        return found.kind, found
    return "value", None


def _records_gap(a: Records | None, b: Records | None) -> RecordsGap:
    if a is None or b is None:
        return RecordsGap("content")
    seen = len(a.rows)
    if a.multiset == b.multiset and a.count == b.count:
        return RecordsGap("order", a.count, seen, seen)
    in_place = sum(x == y for x, y in zip(a.rows, b.rows, strict=False))
    if a.count == b.count and in_place * 2 >= seen > 0:
        return RecordsGap("some", a.count, seen, in_place)
    return RecordsGap("content", a.count, seen, len(set(a.rows) & set(b.rows)))


def _group(tensor: Tensor) -> str:
    return tensor.name.split("/")[0].split("#")[0]


def overall_relative(gaps: Sequence[Gap | None]) -> float | None:
    known = [found for found in gaps if found is not None]
    norm = sum(found.norm_square for found in known)
    square = sum(found.square for found in known)
    if not known or not square < float("inf") or not norm < float("inf"):
        return None
    return float((square / norm) ** 0.5) if norm else 0.0


def is_rounding(
    pairs: Sequence[tuple[Tensor, Tensor]], gaps: Sequence[Gap | None], stage_relative: float | None
) -> bool:
    """Whether every tensor differs by rounding of its dtype: relative to itself, or to the largest of its
    stage.

    The second is needed for sums that cancel, such as the gradient of a bias before a normalisation: they
    consist of rounding errors only, so their own relative difference can be large.
    """
    if pairs[0][0].stage in (Stage.BATCH, Stage.INITIAL) or stage_relative is None:
        return False
    scale = max((found.norm_square for found in gaps if found), default=0.0) ** 0.5
    for (tensor, _), found in zip(pairs, gaps, strict=True):
        limit = ROUNDING.get(tensor.dtype, 0.0)
        if found is None or found.relative is None:
            return False
        if found.relative > limit and found.square**0.5 > limit * scale:
            return False
    return True


def same_records_overall(a: Sequence[Step], b: Sequence[Step], group: str) -> bool:
    """Return whether all steps together used the same records, each equally often, in any order."""

    def total(steps: Sequence[Step]) -> int | None:
        found = [step.records.get(group) for step in steps]
        return None if None in found or not found else sum(r.multiset for r in found if r) % (1 << 256)

    mine, theirs = total(a), total(b)
    return mine is not None and mine == theirs and len(a) == len(b)
