"""The report on the workers of one training: what differs first, on which, why, and what to change."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Stage
from orchestrator.model.workers import (
    NotCompared,
    WorkerCause,
    WorkerFact,
    WorkerFinding,
    WorkersConclusion,
    WorkersVerdict,
)

WIDTH = 80
_MARGIN = 12
_MOST = 6
"""The most facts that are listed; the rest is counted."""

_HEADS = {
    WorkersConclusion.EQUAL: "the workers train what one process trains",
    WorkersConclusion.DIFFERS: "the workers do not train what one process trains",
    WorkersConclusion.NOT_COMPARED: "the workers could not be compared with one process",
}
_STAGES = {
    Stage.INITIAL: "the initial weights",
    Stage.BATCH: "the examples",
    Stage.GRADIENT: "the summed gradients",
    Stage.UPDATE: "the new weights",
}
_CAUSES = {
    WorkerCause.SAME_EXAMPLES: "the batch is not divided between these workers",
    WorkerCause.ALL_EXAMPLES: "each of these workers reads the whole global batch",
    WorkerCause.OTHER_STEP: "the examples are divided or ordered in another way",
    WorkerCause.OTHER_EXAMPLES: "these workers read other data",
    WorkerCause.FEWER_EXAMPLES: "the workers together read fewer examples than one process",
    WorkerCause.LOSS_SCALE: "the loss is averaged over a worker's share, and the gradients are then summed",
    WorkerCause.PER_SHARE: "the model has a layer whose result depends on how a batch is divided",
    WorkerCause.SEED: "another seed",
    WorkerCause.DATA: "other data files",
    WorkerCause.CODE: "other code",
    WorkerCause.SETTINGS: "other settings",
    WorkerCause.PACKAGES: "other packages",
    WorkerCause.PROCESSOR: "another processor, or other use of it",
    WorkerCause.UNKNOWN: "not known: no recorded fact of these workers explains it",
}
_SHARD = (
    "Divide the dataset by worker: AutoShardPolicy.DATA with experimental_distribute_dataset and a dataset "
    "of global batches, or dataset.shard(workers, rank) before batching with the policy OFF."
)
_FIXES = {
    WorkerCause.SAME_EXAMPLES: _SHARD,
    WorkerCause.ALL_EXAMPLES: _SHARD,
    WorkerCause.OTHER_STEP: "Shuffle with one seed on all workers before dividing, and use "
    "AutoShardPolicy.DATA: FILE gives each worker whole files.",
    WorkerCause.OTHER_EXAMPLES: "Give all workers the same files, in the same order.",
    WorkerCause.FEWER_EXAMPLES: "Use the same global batch with any number of workers.",
    WorkerCause.LOSS_SCALE: "Divide by the global batch: tf.nn.compute_average_loss(losses, "
    "global_batch_size=…).",
    WorkerCause.PER_SHARE: "Expect other numbers from batch normalisation and dropout; use "
    "BatchNormalization(synchronized=True), or compare without these layers.",
    WorkerCause.SEED: "Use one constant on all workers: keras.utils.set_random_seed(1).",
    WorkerCause.DATA: "Decide which files are right, and copy them to all workers.",
    WorkerCause.CODE: "Run the same code on all workers.",
    WorkerCause.SETTINGS: "Give all workers the same arguments and settings.",
    WorkerCause.PACKAGES: "Install the same lock on all workers.",
    WorkerCause.PROCESSOR: "Rent machines of one type, or export ONEDNN_MAX_CPU_ISA=AVX2 on all.",
}
_REASONS = {
    NotCompared.NO_STEPS: "No training step was recorded",
    NotCompared.NO_RANK: "A recording is not that of a worker: TF_CONFIG was not set or lists no such worker",
    NotCompared.RANKS: "The recordings are not one of each worker of one training",
    NotCompared.BATCHES: "the examples",
    NotCompared.INITIAL: "the initial weights",
    NotCompared.GRADIENTS: "the gradients",
    NotCompared.UPDATES: "the weights after a step",
}


def letter(found: WorkersVerdict, width: int = WIDTH) -> str:
    """Format a verdict on workers for one screen."""
    lines = [f"{found.verdict}: {_HEADS[found.verdict]}", ""]
    for name, texts in (
        ("Finding", _finding(found)),
        ("Cause", _cause(found)),
        ("Treatment", _treatment(found)),
        ("Also differs", _facts(found)),
        ("Not seen", _unseen(found)),
        ("Rounding", _drift(found)),
    ):
        lines += _part(name, texts, max(40, width))
    return "\n".join(lines)


def _part(name: str, texts: Iterator[str], width: int) -> Iterator[str]:
    for text in texts:
        margin = " " * (_MARGIN + 1)
        yield textwrap.fill(
            text, width, initial_indent=f"{name:{_MARGIN}} ", subsequent_indent=margin, break_on_hyphens=False
        )
        name = ""


def _finding(found: WorkersVerdict) -> Iterator[str]:
    if found.verdict == WorkersConclusion.NOT_COMPARED:
        yield from _reason(found)
    elif found.verdict == WorkersConclusion.EQUAL:
        yield (
            f"{counted(found.world, 'worker')} began with the weights of one process and together read its "
            f"examples in {counted(found.steps, 'step')}, all equal to the bit. The weights after each step "
            "are equal up to the order in which numbers are summed."
        )
    for finding in found.findings:
        stage = f"In step {finding.step}, {_STAGES[finding.stage]}"
        yield f"{stage} of {_ranks(finding.ranks)} are not those of one process.{_detail(finding)}"


def _detail(finding: WorkerFinding) -> str:
    share = f"{finding.examples} of {counted(finding.count, 'example')}"
    if finding.examples and finding.stage == Stage.BATCH:
        if finding.cause == WorkerCause.FEWER_EXAMPLES:
            return f" It reads {share} of the global batch."
        if finding.cause == WorkerCause.SAME_EXAMPLES:
            return f" It reads {share} that worker {finding.like} reads too."
        if finding.cause == WorkerCause.ALL_EXAMPLES:
            return f" It reads all {counted(finding.count, 'example')}."
        where = f"; one process reads such in step {finding.like}" if finding.like is not None else ""
        return f" {share} are not in the batch of one process{where}."
    size = f", {finding.relative:.2g} apart (relative L2)" if finding.relative is not None else ""
    return f" First: {finding.tensor}{size}." if finding.tensor else ""


def _reason(found: WorkersVerdict) -> Iterator[str]:
    first = found.unseen[0]
    if first not in (NotCompared.NO_STEPS, NotCompared.NO_RANK, NotCompared.RANKS):
        yield f"Not recorded on all sides: {', '.join(_REASONS[each] for each in found.unseen)}."
        return
    who = f": {_ranks(found.missing)}" if found.missing else ""
    yield f"{_REASONS[first]}{who}."
    yield from found.why


def _cause(found: WorkersVerdict) -> Iterator[str]:
    for finding in found.findings:
        told = "; ".join(_fact(fact) for fact in finding.facts[:_MOST])
        yield f"{_ranks(finding.ranks).capitalize()}: {_CAUSES[finding.cause]}{f' ({told})' if told else ''}."


def _treatment(found: WorkersVerdict) -> Iterator[str]:
    yield from dict.fromkeys(_FIXES[each.cause] for each in found.findings if each.cause in _FIXES)


def _facts(found: WorkersVerdict) -> Iterator[str]:
    """List recorded facts that differ and are no cause: in the verdict EQUAL they have no effect."""
    named = {fact for finding in found.findings for fact in finding.facts}
    rest = [fact for fact in found.facts if fact not in named]
    for fact in rest[:_MOST]:
        yield f"Worker {fact.rank}: {_CAUSES[fact.cause]} ({_fact(fact)})."
    if len(rest) > _MOST:
        yield f"{len(rest) - _MOST} more."


def _fact(fact: WorkerFact) -> str:
    if fact.single is None and fact.worker is None:
        return fact.name
    return f"{fact.name}: {fact.single or 'nothing'} in one process, {fact.worker or 'nothing'} on it"


def _unseen(found: WorkersVerdict) -> Iterator[str]:
    if found.verdict == WorkersConclusion.EQUAL and found.unseen:
        yield f"Not recorded on all sides: {', '.join(_REASONS[each] for each in found.unseen)}."


def _drift(found: WorkersVerdict) -> Iterator[str]:
    if found.verdict == WorkersConclusion.EQUAL and found.drift:
        sizes = ", ".join(f"{_STAGES[stage]} {value:.1g}" for stage, value in found.drift)
        yield f"Largest relative L2 difference: {sizes}."


def _ranks(ranks: Sequence[int]) -> str:
    """Name workers in a sentence; -1 is the single process."""
    names = [str(rank) for rank in ranks if rank >= 0]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
    words = [f"worker{'s' if len(names) > 1 else ''} {listed}"] if names else []
    return " and ".join(["the single process", *words] if -1 in ranks else words)
