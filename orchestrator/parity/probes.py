"""Candidates that no recorded difference suggests, and changes that affect rounding only. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model.outcomes import Kind, Stage
from orchestrator.parity.changes import Facts, intra_op
from orchestrator.parity.intervention import Candidate, Intervention, Other
from orchestrator.parity.ladder import Finding


def probes(finding: Finding, mine: Facts) -> Iterator[Candidate]:
    """Return what the stage suggests although no recorded fact differs."""
    if finding.stage in (Stage.BATCH, Stage.FILES):
        for words, imposed in (
            ("one core instead of several, on which interleave depends", Intervention(plan={"cpus": 1})),
            ("sorted folder listings", Intervention(plan={"listing": "sorted"})),
        ):
            topic = "cores" if "cpus" in imposed.plan else "order"
            yield Candidate(topic, words, "Make the order of records explicit.", imposed, Kind.PROBE)
    elif finding.stage != Stage.INITIAL and finding.rounding:
        yield from rounding_perturbations(mine)


def rounding_perturbations(mine: Facts) -> tuple[Candidate, ...]:
    """Return changes that affect rounding only: used as probes, and to calibrate the tolerance."""
    found = []
    if intra_op(mine) != 1:
        found.append(
            Candidate(
                "threads",
                "one thread within an operation",
                "Set TF_NUM_INTRAOP_THREADS=1 on both sides.",
                Intervention(plan={"intra_op": 1}),
                Kind.PROBE,
            )
        )
    flags = mine.get("cpu", {}).get("flags", [])
    below = [flag for flag in flags if not flag.startswith(("avx512", "amx", "avx_vnni"))]
    if len(below) < len(flags) and "ONEDNN_MAX_CPU_ISA" not in mine.get("environment", {}):
        words, fix = "instructions up to AVX2", "Export ONEDNN_MAX_CPU_ISA=AVX2 on both sides."
        found.append(
            Candidate("isa", words, fix, Intervention(env={"ONEDNN_MAX_CPU_ISA": "AVX2"}), Kind.PROBE)
        )
    if (mine.get("tensorflow") or {}).get("onednn"):
        words, fix = "oneDNN off", "Export TF_ENABLE_ONEDNN_OPTS=0 on both sides."
        found.append(
            Candidate("onednn", words, fix, Intervention(env={"TF_ENABLE_ONEDNN_OPTS": "0"}), Kind.PROBE)
        )
    return tuple(found)


def replays(finding: Finding, other: Other) -> Iterator[Candidate]:
    if other.observe is None:
        return
    if finding.stage in (Stage.BATCH, Stage.FILES):
        words = "what enters the model (the other side's batches, replayed)"
        imposed = Intervention(env={"ORCH_IMPOSE_BATCH": str(other.observe)})
        yield Candidate("replay", words, "", imposed, Kind.REPLAY)
    if finding.stage == Stage.INITIAL:
        words = "where training begins (the other side's initial weights)"
        imposed = Intervention(env={"ORCH_IMPOSE_WEIGHTS": str(other.observe)})
        yield Candidate("replay", words, "", imposed, Kind.REPLAY)
    if finding.stage in (Stage.BATCH, Stage.INITIAL, Stage.FILES):
        words = "batches and initial weights together (replayed)"
        both = {"ORCH_IMPOSE_BATCH": str(other.observe), "ORCH_IMPOSE_WEIGHTS": str(other.observe)}
        yield Candidate("replay", words, "", Intervention(env=both), Kind.REPLAY)
