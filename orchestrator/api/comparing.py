"""compare: compare two recorded runs; with `confirm`, find the cause of a difference by running
steps again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator import parity
from orchestrator.api.repeatable import repeatable
from orchestrator.errors import UsageError
from orchestrator.model import Progress, RunRecord, Verdict
from orchestrator.model.progress import as_progress
from orchestrator.parity.intervention import Intervention
from orchestrator.parity.places import named_alike, named_by_variables
from orchestrator.parity.recording import Recording, read
from orchestrator.profile.resolved import DataTree
from orchestrator.reads.reference import Reference
from orchestrator.replay import confirm as confirming
from orchestrator.replay import recipe
from orchestrator.replay.command_line import folder_of, normalise, program_of
from orchestrator.replay.confirm import BUDGET, Sides, imitation_of, is_confirmable, light_steps
from orchestrator.replay.fork_server import ForkServers
from orchestrator.replay.pool import ReplayPool
from orchestrator.replay.recipe import Recipe
from orchestrator.replay.replayer import Replayer
from orchestrator.replay.sandbox import Folders, Layout
from orchestrator.replay.staleness import changed_since, restored
from orchestrator.runs import record_file
from orchestrator.runs.kept_code import changed_code
from orchestrator.runs.outputs import Sameness, compare_files_and_metrics
from orchestrator.runs.sbom import changed_packages
from orchestrator.session.project import Project
from orchestrator.session.session import local_agent


def compare(
    a: Path | str,
    b: Path | str,
    *,
    folder: Path | str | None = None,
    confirm: bool = False,
    budget: float = BUDGET,
    progress: Progress | Callable[[str], None] | None = None,
    pool: ReplayPool | None = None,
) -> Verdict:
    """Compare two runs, given as folders or ids under `runs/`: tensor by tensor if both were recorded,
    otherwise by their records and results (see parity.compare_records).

    `confirm` looks for the cause by running the first steps again on this computer, on copies of the working
    folder, for at most `budget` seconds; `untried` says what could not be run. Calls that share a `pool`
    reuse imported frameworks and repeated runs.
    """
    project = Project.at(folder)
    records = _records(project, a, b)
    if records:
        return by_records(*records)
    first, second = observed(project, a), observed(project, b)
    if not confirm:
        return parity.judge(*_recordings((first, second)))
    tell, folders = as_progress(progress), (repeatable(first).folder, repeatable(second).folder)
    if folders != (first, second):
        tell.say("Repeating first steps of this computer, which were identical to those of the machine")
    if pool:
        return confirm_cause(project, folders, budget, tell, pool)
    with ReplayPool() as own:
        return confirm_cause(project, folders, budget, tell, own)


def by_records(a: RunRecord, b: RunRecord) -> Verdict:
    """Compare two runs by their records, the results that both wrote by content, and the code by file."""
    results = compare_files_and_metrics(a, b)
    return parity.compare_records(
        a.as_json(),
        b.as_json(),
        results=results.conclusion,
        same_content={each.path for each in results.outputs if each.found == Sameness.CONTENT},
        changed_code=changed_code(a.folder, b.folder),
        changed_packages=changed_packages(a.folder, b.folder),
    )


def _records(project: Project, a: Path | str, b: Path | str) -> tuple[RunRecord, RunRecord] | None:
    """The records of two runs unless tensors of both were recorded; None if they were, or if a record is
    missing.
    """
    if all(_has_steps(project, run) for run in (a, b)):
        return None
    first, second = (_record(project, run) for run in (a, b))
    return (first, second) if first and second else None


def _has_steps(project: Project, run: Path | str) -> bool:
    """Whether a step was recorded: of a program without TensorFlow and Keras, only the folder is left."""
    found = _observed(project, run)
    steps = found / "observe/steps.jsonl" if found else None
    return steps is not None and steps.is_file() and steps.stat().st_size > 0


def _record(project: Project, run: Path | str) -> RunRecord | None:
    folders = (Path(run), project.run(str(run)))
    return next((found for folder in folders if (found := record_file.read(folder))), None)


def cannot_confirm(a: Path | str, b: Path | str, folder: Path | str | None = None) -> str | None:
    """Why neither of two recorded runs can be run again here; None if one can."""
    project = Project.at(folder)
    first, second = (repeatable(observed(project, run)).folder for run in (a, b))
    base, why = _base((first, second), _recordings((first, second)))
    return None if base else why


def recorded_here(a: Path | str, b: Path | str, folder: Path | str | None = None) -> tuple[Path, Path] | None:
    """The recordings on this computer of two runs on machines, if they do not stand for those of the
    machines; None unless both runs have one.
    """
    project = Project.at(folder)
    first, second = (repeatable(observed(project, run)).beside for run in (a, b))
    return (first, second) if first and second else None


def confirm_cause(
    project: Project, folders: tuple[Path, Path], budget: float, tell: Progress, pool: ReplayPool
) -> Verdict:
    """Compare two recordings and confirm the cause with the one that can be run again here."""
    recordings = _recordings(folders)
    verdict = parity.judge(recordings[0], recordings[1])
    if not is_confirmable(verdict, *recordings):
        return verdict
    base, why = _base(folders, recordings)
    if base is None:
        return replace(verdict, untried=f"The cause was not confirmed: {why}.")
    index = "AB".index(base)
    mine, other = folders[index], folders[1 - index]
    known, theirs = recipe.read_recipe(mine), recipe.read_recipe(other)
    assert known
    where = theirs.cwd if theirs and not theirs.obstacle else None
    beside = folder_of(theirs.argv, where) if theirs and where else None
    python, their_own = (theirs.python, theirs.made) if theirs else (None, ())
    imitated = _at_sources(recordings[1 - index], theirs)
    to_imitate = imitation_of(other, imitated, python, where, their_own, beside)
    sides = Sides(recordings[0], recordings[1], base, to_imitate, mine / "observe")
    recorded = recordings[index]
    steps, light = max(len(recorded.steps), recorded.requested), light_steps(verdict, recorded)

    made = _made(known, mine, recorded)

    def make(servers: ForkServers) -> Replayer:
        facts, agent = recorded.environment, local_agent(project)
        again = Replayer(known, _layout(known, made), agent, facts, steps, light, servers=servers)
        again.always = Intervention(files=restored(known, facts, mine / recipe.KEPT))
        return again

    runs = pool.runs(f"{mine.resolve()} {light}", make)
    return confirming.confirm(sides, verdict, runs, budget, tell)


def _recordings(folders: tuple[Path, Path]) -> tuple[Recording, Recording]:
    """Load both recordings, with files named alike."""
    a, b = (_with_variables(read(folder), recipe.read_recipe(folder)) for folder in folders)
    left, right = named_alike(a.environment, b.environment)
    return replace(a, environment=left), replace(b, environment=right)


def _with_variables(recording: Recording, known: Recipe | None) -> Recording:
    """The recording with its folder, and the variables that its code reads, among its facts."""
    if known is None or not recording.environment:
        return recording
    located = known.located(recording.environment)
    facts = {**located, "variables": dict(known.variables), "cwd": str(known.cwd)}
    if known.stdin:
        facts["stdin"] = known.stdin.name
    program = program_of(known.argv)
    if program is None:
        facts["command"] = normalise(known.argv, known.cwd)
    elif not program.module:
        place = Path(os.path.normpath(known.cwd / program.name))
        facts["start"] = {
            "as": os.path.relpath(place, known.cwd),
            "in": os.path.relpath(known.cwd, place.parent),
        }
    return replace(recording, environment=named_by_variables(facts))


def _base(folders: Sequence[Path], recordings: Sequence[Recording]) -> tuple[str | None, str]:
    """Choose the side that can be run again here, or say why none can. A side whose code and data are
    unchanged is preferred, then one whose caches still exist, then A.
    """
    obstacles, able = [], []
    for name, folder, recorded in zip("AB", folders, recordings, strict=True):
        known = recipe.read_recipe(folder)
        obstacle = known.obstacle if known else repeatable(folder).why
        if known and obstacle is None:
            facts = recorded.environment
            changed = changed_since(known, facts), changed_since(known, facts, caches=True)
            able.append(([each is not None for each in changed], name))
        obstacles.append(f"{name} cannot be run again here: {obstacle}")
    return (min(able)[1], "") if able else (None, "; ".join(obstacles))


def _made(known: Recipe, run: Path, recorded: Recording) -> frozenset[Path]:
    """Files in the working folder that the recorded run created: written before they were read."""
    entries = (recorded.environment.get("files") or {}).get("list") or []
    read_ = {Path(entry["path"]) for entry in entries if not entry.get("made")}
    wrote = {Path(entry["path"]) for entry in entries if entry.get("made")}
    record = record_file.read(run)
    left = {Path(os.path.normpath(run / each["path"])) for each in record.artifacts} if record else set()
    found = (wrote | left) - read_
    found |= {known.cwd / name for name in known.made}
    return frozenset(path for path in found if path.is_relative_to(known.cwd))


def _layout(known: Recipe, made: frozenset[Path]) -> Layout:
    """The folder of a repeated run: the command's own, or a profile's project with its data."""
    if known.data is None:
        return Folders(known.cwd, folder_of(known.argv, known.cwd), made)
    trees = tuple(DataTree(source, target, None) for target, source in known.data.items())
    return Reference(known.cwd, trees, made=made)


def _at_sources(recording: Recording, known: Recipe | None) -> Recording:
    """The recording of the side to imitate, with its data where they are on this computer."""
    files = recording.environment.get("files") or {}
    if known is None or not known.data or not files.get("list"):
        return recording
    listed = [{**e, "path": str(known.content_at(Path(e["path"])))} for e in files["list"]]
    return replace(recording, environment={**recording.environment, "files": {**files, "list": listed}})


def observed(project: Project, run: Path | str) -> Path:
    """The folder that contains `observe/`: the run's own, or that of its side of a parity check."""
    found = _observed(project, run)
    if found:
        return found
    raise UsageError(
        f"{run} is not a recorded run: neither that folder nor {project.run(str(run))} holds a recording.",
        next_command="orch record -- python train.py",
    )


def _observed(project: Project, run: Path | str) -> Path | None:
    folders = (Path(run), project.run(str(run)))
    places = (inside for folder in folders for inside in (folder, folder / "parity" / "there"))
    return next((inside for inside in places if (inside / "observe").is_dir()), None)
