"""The verb `size`: measure what a training needs on this computer, and derive minimums and offers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator import catalog
from orchestrator.catalog.for_plan import offers_for, warnings_for
from orchestrator.errors import UsageError
from orchestrator.model import AcceleratorNeed, Bound, Need, Offer, Progress, clouds
from orchestrator.model.progress import as_progress
from orchestrator.plan import rank
from orchestrator.profile import Profile, load
from orchestrator.reads.advice import advice_here
from orchestrator.reads.sent import sent_of, sent_without_profile
from orchestrator.reads.undeclared import Undeclared, undeclared
from orchestrator.replay.command_line import command_python
from orchestrator.session.project import Project
from orchestrator.session.session import local_stack
from orchestrator.session.trees import make
from orchestrator.sizing import model as sizes_
from orchestrator.sizing import scratch_run
from orchestrator.sizing.fit import Estimate
from orchestrator.sizing.minimums import Files, Minimum, minimums
from orchestrator.sizing.model import Model
from orchestrator.sizing.scratch_run import Program

SHOWN = 5
"""Offers that are returned, the best of each type."""

BUDGET = 120.0
LIMIT = 900.0
"""Seconds: for the trials, and in total."""

_NOT_SIZED = frozenset((".git", ".hg", ".orch", "runs", "__pycache__", "node_modules"))


@dataclass(frozen=True)
class Sized:
    """The outcome of a sizing. `batch`: the examples of the step that the numbers are for; `gpu`: whether
    the machine is to have a GPU.
    """

    model: Model
    batch: int
    gpu: bool
    minimums: tuple[Minimum, ...]
    files: Files
    offers: tuple[Offer, ...]
    warnings: tuple[str, ...]
    profile: Path | None
    undeclared: tuple[Undeclared, ...] = ()

    @property
    def estimated(self) -> bool:
        """Whether the numbers for a GPU were measured without one."""
        return self.gpu and self.model.measured.gpu is None

    @property
    def _told(self) -> str | None:
        """The undeclared data that the training reads, in words; None if there are none."""
        path = self.profile or Path("orch.yaml")
        return advice_here(self.undeclared, path) if self.undeclared else None

    @property
    def snippet(self) -> str:
        """The minimums as lines of a profile."""
        lines = ["resources:"]
        for each in self.minimums:
            key, _, inner = each.key.partition(".")
            lines.append(f"  {key}: {{{inner}: {each.text}}}" if inner else f"  {key}: {each.text}")
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as plain data: bytes, seconds, US dollars an hour."""
        measured, batch = self.model.measured, self.batch
        state = asdict(measured.state)
        return {
            "batch": batch,
            "own_batch": measured.batch,
            "tried": [each.batch for each in measured.sizes],
            "training": measured.kind,
            "device": measured.gpu or "CPU",
            "gpu": self.gpu,
            "estimated": self.estimated,
            "optimizer": measured.optimizer,
            "policy": measured.policy,
            "xla": measured.xla,
            "memory": {
                "formula": {
                    **state,
                    "batch": self.model.batch_bytes(batch),
                    "total": self.model.formula(batch),
                },
                "fit": _fit_json(self.model, batch),
                "process": _estimate(self.model.held.at(batch)),
            },
            "step": {"seconds": self.model.seconds.at(batch).value, "cpu": self.model.cpu.at(batch).value},
            "input": {
                "cpu": self.model.pipeline_cpu(batch),
                "bytes_read": measured.pipeline.bytes_read if measured.pipeline else None,
                "bytes": self.model.batch_bytes(batch),
            },
            "files": asdict(self.files),
            "minimums": [{**asdict(each), "text": each.text} for each in self.minimums],
            "snippet": self.snippet,
            "offers": [asdict(offer) for offer in self.offers],
            "notes": [dict(note) for note in measured.notes],
            "warnings": list(self.warnings),
            "undeclared": [each.as_json() for each in self.undeclared],
            "undeclared_words": self._told,
        }


def _fit_json(model: Model, batch: int) -> dict[str, Any] | None:
    total = model.device(batch)
    if model.step is None or total is None:
        return None
    return {
        "kept": model.kept(),
        "intercept": _estimate(model.step.intercept),
        "slope": _estimate(model.step.slope),
        "total": _estimate(total),
    }


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {name: value if value != float("inf") else None for name, value in asdict(estimate).items()}


def size(
    profile: Path | str | None = None,
    command: Sequence[str] = (),
    *,
    batch: int | None = None,
    sizes: Sequence[int] = (),
    gpu: bool | None = None,
    budget: float = BUDGET,
    limit: float = LIMIT,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> Sized:
    """Run the unmodified training here up to its first step, repeat that step with other batch sizes, and
    return what it needs. Everything that it writes is discarded.

    `command` runs in the current folder; without it, `profile`'s command runs. `batch` is the size that
    matters (default: the program's own), `sizes` are those to try, `budget` and `limit` are seconds. `gpu`:
    size for a machine with a GPU (default: whether the profile asks for one, or this computer has one). Raise
    UsageError if there is nothing to measure, RunFailed if the program fails before its first step,
    LocalError if this computer's memory is too small for that step.
    """
    tell = as_progress(progress)
    if profile is None and not command:
        raise UsageError(
            "Neither a profile nor a command was given.",
            next_command="orch size orch.yaml    # or: orch size -- python train.py",
        )
    wanted = load(Path(profile), overrides=tuple(overrides)) if profile is not None else None
    project = Project.at(folder)
    project.ignore_state()
    program = _program(wanted, command, tell)
    found = scratch_run.measure(
        program, project, batch=batch, sizes=sizes, budget=budget, limit=limit, progress=tell
    )
    sized = _sized(found.result, program, wanted, batch, gpu)
    return replace(sized, undeclared=_undeclared(found, program, wanted))


def _undeclared(
    found: scratch_run.Measured, program: Program, profile: Profile | None
) -> tuple[Undeclared, ...]:
    """Return files that the training read and the machine would lack."""
    sent = sent_of(profile) if profile else sent_without_profile(program.cwd)
    outputs = profile.train.outputs if profile else ()
    return undeclared(found.opened, sent, found.view, outputs=outputs, begun=found.begun)


def _program(profile: Profile | None, command: Sequence[str], tell: Progress) -> Program:
    if profile is None:
        return Program(tuple(command), Path.cwd(), command_python(command))
    python = local_stack(profile, tell).python
    for each in profile.data:
        make(each, profile, lambda: python, tell)
    return Program(
        tuple(command) or profile.train.command,
        profile.code.path,
        str(python),
        env=profile.train.environment(),
        data=profile.data,
    )


def _sized(
    result: dict[str, Any], program: Program, profile: Profile | None, batch: int | None, gpu: bool | None
) -> Sized:
    measured = sizes_.read(result)
    model = sizes_.model(measured)
    wanted = batch or measured.batch
    has = measured.gpu is not None or bool(profile and profile.resources.accelerator)
    with_gpu = has if gpu is None else gpu
    files = _files(program, profile)
    least = minimums(model, wanted, files, gpu=with_gpu)
    need = _need(least, profile)
    lasting = [offer for offer in offers_for(need, None) if not offer.burstable]
    ranked = rank(need, lasting)
    types = {(offer.cloud, offer.instance_type): offer for offer in reversed(ranked)}
    offers = [offer for offer in ranked if types[offer.cloud, offer.instance_type] is offer]
    return Sized(
        model,
        wanted,
        with_gpu,
        least,
        files,
        tuple(offers[:SHOWN]),
        warnings_for(need),
        profile.path if profile else None,
    )


def _need(least: Sequence[Minimum], profile: Profile | None) -> Need:
    """Return the need that the minimums add up to; place, price and the GPU's name are those of the
    profile.
    """
    amounts = {each.key: Bound(each.amount, at_least=True) for each in least}
    base = profile.need() if profile else Need(cloud=clouds.ANY)
    own = base.accelerator if base.accelerator else AcceleratorNeed()
    gpu = replace(own, memory=amounts["accelerator.memory"]) if "accelerator.memory" in amounts else None
    rented = base.cloud in catalog.clouds()
    return replace(
        base,
        cloud=base.cloud if rented else clouds.ANY,
        region=base.region if rented else None,
        zone=base.zone if rented else None,
        arch=base.arch or "x86_64",
        cpus=amounts["cpus"],
        memory=amounts["memory"],
        disk=int(amounts["disk"].value),
        accelerator=gpu,
    )


def _files(program: Program, profile: Profile | None) -> Files:
    data = sum(_bytes_below(each.source) for each in profile.data) if profile else 0
    return Files(stack=_stack_bytes(Path(program.python)), code=_bytes_below(program.cwd), data=data)


def _stack_bytes(python: Path) -> int | None:
    """Return the bytes of the environment's packages; None if they are not in an environment of their own."""
    root = python.parent.parent
    return _bytes_below(root / "lib") if (root / "pyvenv.cfg").exists() else None


def _bytes_below(path: Path) -> int:
    """Return the bytes of all files in a folder, except for those that are never sent."""
    if path.is_file():
        return path.stat().st_size
    total = 0
    for folder, names, files in os.walk(path):
        names[:] = [name for name in names if name not in _NOT_SIZED and not _is_environment(folder, name)]
        for name in files:
            total += (Path(folder) / name).lstat().st_size
    return total


def _is_environment(folder: str, name: str) -> bool:
    return (Path(folder) / name / "pyvenv.cfg").exists()
