"""Determine what limited a run: rules with thresholds and reasons, of which the first that applies decides.

The order: memory first, because a shortage slows everything else; then what is not a step at all (validation,
callbacks, first batches, the script between steps), if that takes more time than waiting for input; then
input, because a step that waits for its batch is limited by it, whatever else is true; then GPU, cores, disk
and network. A run whose steps, waits and cores are known, and none of them at its limit, was limited by
nothing that is measured here. A run of few steps gets a verdict only if it cannot be due to chance.
"""

from __future__ import annotations

from orchestrator.model.counted import counted, rounded
from orchestrator.profiling.devices import Disk
from orchestrator.profiling.evidence import CPU_BUSY, FEW_STEPS, SHORT_SECONDS, Evidence

MEMORY_FULL = 0.95
"""Peak memory, as a share of what the run was allowed."""

FAULTS_PER_S = 200.0
"""Pages read back from disk a second, during training: memory is short although it never looks full. Not
used for a run without steps, whose start-up reads the pages of its libraries.
"""

SWAPPING = 1e6
"""Bytes a second to and from swap, while a part of the run is in swap."""

INPUT_WAIT = 0.15
"""Share of a step. Below it, a perfect pipeline would gain less than the difference between runs."""

SURE_PROBES = 4
SURE_WAIT = 0.3
"""In a short run, this share of waiting over so many measured steps cannot be due to chance."""

GPU_BUSY = 0.85

THROTTLED = 0.1
STOLEN = 0.1
"""Seconds a second, for each core, in which a quota, or another machine on the host, kept the run from it."""

ONE_CORE = (0.9, 1.1)
"""The cores that a run keeps busy, or wants, if it does one thing at a time."""

WAITED = 0.1

PAUSED = 0.3
"""Share of the training without a step, for one reason."""

ONE_THREAD = 0.8
"""Share of the time in which the training thread had a core, or waited for one. In a training with graphs
the share is far lower, because that thread waits for the threads that compute.
"""

ONE_THREAD_WAITS = 0.25
"""Share of a step. A training thread that is at work most of the time cannot wait for input longer than
that.
"""

NOTICED = 0.1
"""Share of the training without a step above which it is reported, although it is not the limit."""

GPU_USED = 0.05

IDLE_CPU = 0.5
IDLE_CORES = 0.5
DISK_RATE = 50e6
NETWORK_RATE = 50e6
"""Bytes a second. If cores are idle at this rate, the run waits for the data."""

AT_ITS_CAP = 0.9
"""Share of a disk's limit, if that is known."""

_MIB = 1 << 20

Verdict = tuple[str, str] | None


def verdict(evidence: Evidence) -> tuple[str | None, str | None]:
    """Return (limited_by, because)."""
    all_rules = (_memory, _paused, _input, _gpu, _cpu, _transfer)
    rules = (_memory, _input) if evidence.short else all_rules
    for rule in rules:
        found = rule(evidence)
        if found is not None:
            return found
    if evidence.short:
        return None, _too_short(evidence)
    if evidence.usage.cpu is None:
        return None, "The run was too short, or too little could be measured, to tell what limited it."
    if evidence.steps.count and evidence.steps.input_wait is None:
        return (
            None,
            "How long the steps waited for input could not be measured, and nothing else was at its limit.",
        )
    return (
        "nothing",
        f"Nothing that is measured was at its limit: {_cpu_words(evidence)} busy{_noticed(evidence)}.",
    )


def _too_short(evidence: Evidence) -> str:
    if evidence.steps.count is None:
        return (
            f"A run of {evidence.wall or 0:.1f} s is too short to tell what limited it: that takes "
            f"{SHORT_SECONDS:.0f} s."
        )
    seconds = evidence.steps.seconds
    lasted = f" in {seconds:.1f} s" if seconds is not None else ""
    count = evidence.steps.count or 0
    return (
        f"{counted(count, 'step')}{lasted} {'is' if count == 1 else 'are'} too few to tell what limited it: "
        f"that takes {FEW_STEPS} steps or {SHORT_SECONDS:.0f} s of training."
    )


def _memory(evidence: Evidence) -> Verdict:
    usage = evidence.usage
    if usage.swapping is not None and usage.swapping >= SWAPPING and usage.swap:
        return (
            "memory",
            f"Memory was short: {rounded(usage.swapping / _MIB, 3)} MiB a second went to and from the swap.",
        )
    if evidence.steps.count and usage.faults is not None and usage.faults >= FAULTS_PER_S:
        return "memory", f"Memory was short: {usage.faults:.0f} pages a second were read back from disk."
    if usage.peak_memory is None or not usage.memory_limit:
        return None
    share = usage.peak_memory / usage.memory_limit
    return (
        ("memory", f"At its peak the run held {share:.0%} of the memory.") if share >= MEMORY_FULL else None
    )


def paused(evidence: Evidence) -> tuple[str, float] | None:
    """Return the reason for which most time passed without a step, and its share of the training; None if
    that share is small, or smaller than that of waiting for input.
    """
    pauses = evidence.pauses
    shares = {
        "validation": pauses.validation,
        "callbacks": pauses.callbacks,
        "first batch": pauses.opening,
        "script": pauses.script if _is_script(evidence) else None,
    }
    known = {name: share for name, share in shares.items() if share is not None}
    name = max(known, key=lambda each: known[each], default=None)
    if name is None or known[name] < PAUSED:
        return None
    waited = (evidence.steps.input_wait or 0.0) * max(0.0, 1 - sum(known.values()))
    return (name, known[name]) if known[name] >= waited else None


def _noticed(evidence: Evidence) -> str:
    """Return a clause on what took a notable share of the time without being the limit; "" if nothing did."""
    pauses = evidence.pauses
    named = ("validation", pauses.validation), ("callbacks", pauses.callbacks)
    known = [
        (name, share or 0.0) for name, share in (*named, ("the first batches of epochs", pauses.opening))
    ]
    name, share = max(known, key=lambda each: each[1])
    return f"; {share:.0%} of the time went into {name}" if share >= NOTICED else ""


def _is_script(evidence: Evidence) -> bool:
    """Return whether the time between two steps is the script's: it is not Keras' loop, and not a wait
    for a GPU.
    """
    return evidence.pauses.source in ("batch", "function") and (evidence.usage.gpu or 0.0) < GPU_USED


def _paused(evidence: Evidence) -> Verdict:
    found = paused(evidence)
    if found is None:
        return None
    name, share = found
    times = f" (of {evidence.pauses.passes} epochs)" if evidence.pauses.passes > 1 else ""
    words = {
        "validation": "of the training's time went into validation.",
        "callbacks": "of the training's time went into callbacks, while no step was made.",
        "first batch": f"of the training's time went into waiting for the first batches of epochs{times}: "
        "buffers fill, files are opened.",
        "script": "of the training's time passed between two steps, in the script's own Python code.",
    }
    return name, f"{share:.0%} {words[name]}"


def _input(evidence: Evidence) -> Verdict:
    share, usage = evidence.steps.input_wait, evidence.usage
    if share is None or share < INPUT_WAIT or (evidence.short and not _surely_waits(evidence)):
        return None
    if one_thread(evidence) and share < ONE_THREAD_WAITS:
        return None
    said = f"Steps waited for input for {share:.0%} of their time{_most_of_it(evidence)}"
    if (evidence.crowded or evidence.taken) and not evidence.alone:
        return "input", f"{said}, while others on the machine kept {evidence.others:.1f} cores busy."
    if evidence.crowded:
        return (
            "input",
            f"{said}, and no core was idle: fewer or cheaper transformations, or more cores, would help.",
        )
    if usage.disk and usage.disk.cap is not None and usage.disk.cap >= AT_ITS_CAP:
        return "input", f"{said}, while {_full(usage.disk)}."
    if not _idle(evidence):
        return "input", f"{said}."
    if (usage.reading or 0) >= DISK_RATE:
        return "input", f"{said}, while {_rate(usage.reading)} came from the disk and cores were idle."
    return "input", f"{said}, while cores were idle."


def _idle(evidence: Evidence) -> bool:
    """Return whether there were cores that nobody used, other programs on the machine included."""
    return (evidence.usage.idle or 0.0) >= IDLE_CORES


MOST = 0.5
"""A node is named if it does at least this share of a pipeline's work."""


def _most_of_it(evidence: Evidence) -> str:
    """Return where in the pipeline, as the script writes it; "" for nodes that Keras makes, which no
    script contains.
    """
    pipeline = evidence.pipeline
    if evidence.training.source:
        return f", for {KERAS_INPUTS.get(evidence.training.source, evidence.training.source)}"
    if pipeline is None or pipeline.of_arrays:
        return ""
    work = sum(node.seconds for node in pipeline.nodes)
    node = pipeline.busiest
    share = node.seconds / work if work else 0.0
    return f", for {node.call} more than all else ({share:.0%} of its work)" if share >= MOST else ""


KERAS_INPUTS = {"PyDataset": "a PyDataset, which is Python code", "generator": "a Python generator"}


def _surely_waits(evidence: Evidence) -> bool:
    """Return whether a short run surely waits: the share less twice its error is far above the threshold;
    in a custom loop every wait was measured, so the share itself must be.
    """
    share = evidence.steps.input_wait or 0.0
    if evidence.steps.probes:
        sure = evidence.steps.probes >= SURE_PROBES
        return sure and share - 2 * (evidence.steps.wait_error or 0.0) >= SURE_WAIT
    return share >= SURE_WAIT


def _gpu(evidence: Evidence) -> Verdict:
    gpu = evidence.usage.gpu
    if gpu is None or gpu < GPU_BUSY:
        return None
    return "gpu", f"The GPU was busy for {gpu:.0%} of the time."


def _cpu(evidence: Evidence) -> Verdict:
    """Return "cpu" only if the run itself keeps busy the cores that it can use; else name who kept it
    from its cores.
    """
    usage, cores = evidence.usage, evidence.cores
    if usage.throttled is not None and usage.throttled / cores >= THROTTLED:
        return (
            "quota",
            f"A quota kept it from its {counted(cores, 'core')} for {usage.throttled:.2f} s of each second.",
        )
    if usage.steal is not None and usage.steal / cores >= STOLEN:
        share = usage.steal / cores
        return "other machines", f"Other machines on the same host took {share:.0%} of its cores from it."
    if usage.cpu is not None and usage.cpu >= CPU_BUSY:
        return "cpu", f"The cores were busy: {_cpu_words(evidence)}."
    if because := others_have_the_cores(evidence):
        return "other programs", because
    if one_thread(evidence):
        return (
            "cpu",
            "One thread did nearly everything, Python and its calls of TensorFlow: it had a core, or waited "
            f"for one, for {evidence.pauses.thread:.0%} of the time. More cores would not help.",
        )
    if evidence.crowded:
        return "cpu", f"Its threads had too few cores: {_crowd_words(evidence)}."
    if _wants_one_core(evidence):
        waited = f", which it had to wait for {usage.waiting:.0%} of the time" if _waited(evidence) else ""
        return "cpu", f"One of {cores:g} cores was wanted{waited}: the run does one thing at a time."
    return None


def _wants_one_core(evidence: Evidence) -> bool:
    wanted = evidence.wanted
    return evidence.cores >= 2 and wanted is not None and ONE_CORE[0] <= wanted <= ONE_CORE[1]


def others_have_the_cores(evidence: Evidence) -> str | None:
    """Return a sentence on how other programs limit the run; None if they do not."""
    wants = _works_all_the_time(evidence) or evidence.crowded or _wants_one_core(evidence)
    if not (wants and evidence.taken):
        return None
    return (
        f"It could have used {evidence.wanted or 0:.1f} cores and had {evidence.usage.busy or 0:.1f}: other "
        f"programs on the machine kept {evidence.others:.1f} cores busy."
    )


def _transfer(evidence: Evidence) -> Verdict:
    usage = evidence.usage
    if usage.cpu is None or usage.cpu >= IDLE_CPU or not _idle(evidence):
        return None
    if usage.disk and usage.disk.cap is not None and usage.disk.cap >= AT_ITS_CAP:
        return "disk", f"Cores were idle while {_full(usage.disk)}."
    if (usage.reading or 0) >= DISK_RATE:
        return "disk", f"Cores were idle while {_rate(usage.reading)} came from the disk."
    if (usage.network or 0) >= NETWORK_RATE:
        return "network", f"Cores were idle while {_rate(usage.network)} went over the network."
    return None


def _waited(evidence: Evidence) -> bool:
    return (evidence.usage.waiting or 0.0) >= WAITED


def _full(disk: Disk) -> str:
    return f"the disk {disk.name} gave {disk.cap:.0%} of what it can ({disk.basis})"


def _rate(bytes_a_second: float | None) -> str:
    return f"{rounded((bytes_a_second or 0) / _MIB, 3)} MiB/s"


def one_thread(evidence: Evidence) -> bool:
    """Return whether the training thread does all the work, although there are other cores that it could
    have.
    """
    return _works_all_the_time(evidence) and not evidence.taken


def _works_all_the_time(evidence: Evidence) -> bool:
    return evidence.cores >= 2 and (evidence.pauses.thread or 0.0) >= ONE_THREAD


def _crowd_words(evidence: Evidence) -> str:
    """Describe threads that wait although cores are free: neither the run nor another program is seen to
    use them.
    """
    usage = evidence.usage
    return (
        f"this run kept {usage.busy or 0:.1f} of {evidence.cores:g} busy, and its threads waited for a core "
        f"{usage.waiting or 0:.1f} s in every second, so that they were kept to fewer than the machine has"
    )


def _cpu_words(evidence: Evidence) -> str:
    return f"{evidence.usage.cpu or 0:.0%} of {counted(evidence.cores, 'core')}"
