"""The gate: a run that succeeded becomes the current model of its project, or is refused with the rules
it broke.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.errors import Changed, NotAccepted, StorageError
from orchestrator.model import Progress, RunRecord
from orchestrator.model.acceptance import MODELS, Accept, How, Promotion, Refusal
from orchestrator.model.progress import notice
from orchestrator.model.records import finite
from orchestrator.profile import Profile
from orchestrator.promotion.decide import refusals_of
from orchestrator.promotion.registry import Registry
from orchestrator.promotion.words import refusals_text
from orchestrator.runs import record_file
from orchestrator.runs.stored import stored_run
from orchestrator.session.project import Project


def judge(project: Project, profile: Profile, record: RunRecord, verb: str, tell: Progress) -> RunRecord:
    """Apply the gate of the profile, `accept`, and return the record with the result; unchanged if the
    profile has no gate or the run did not succeed.

    A model that passes replaces the current one. It does so once, however often this is called: a run that
    was promoted before, and replaced or rolled back since, is not promoted again. Raise NotAccepted, with the
    record, if the model is refused; the current model then stays.
    """
    if profile.accept is None or not record.succeeded:
        return record
    registry = Registry(project, profile.accept.name, profile.store or "")
    with registry.turn(verb, tell):
        refusals, before = _promoted(registry, profile.accept, record)
        judged = replace(record, acceptance=_facts(profile.accept, refusals, before))
        if judged.acceptance != record.acceptance:
            record_file.write(judged)
            _replace_stored(profile, judged, tell)
    if refusals:
        raise _refused(project, profile.accept, judged, refusals, before)
    if judged.acceptance != record.acceptance:
        tell.say(f"Accepted: {MODELS}/{registry.name} is {record.run_id} now{_was(before)}")
    return judged


def _promoted(
    registry: Registry, accept: Accept, record: RunRecord
) -> tuple[tuple[Refusal, ...], Promotion | None]:
    """Return the rules that the run breaks, and the model it was compared with. A run that breaks no rule
    becomes current.
    """
    while True:
        seen = registry.read()
        if seen.history.of(record.run_id):
            registry.settle(seen.history)
            return (), seen.history.before(record.run_id)
        current = seen.history.current
        refusals = refusals_of(accept, record, current)
        if refusals:
            registry.settle(seen.history)
            return refusals, current
        try:
            registry.promote(seen, record.run_id, time.time(), How.ACCEPTED, finite(record.metrics))
        except Changed:  # another client promoted a model meanwhile: decide again
            continue
        registry.settle(registry.read().history)
        return (), current


def _facts(accept: Accept, refusals: Sequence[Refusal], before: Promotion | None) -> dict[str, object]:
    return {
        "model": accept.name,
        "accepted": not refusals,
        "refusals": [each.as_json() for each in refusals],
        "compared_with": before.run_id if before else None,
    }


def _replace_stored(profile: Profile, record: RunRecord, tell: Progress) -> None:
    try:
        if stored := stored_run(profile, record.run_id):
            stored.replace_record(record)
    except StorageError as error:
        notice(tell, f"The record of {record.run_id} in the store lacks the gate's result: {error}")


def _refused(
    project: Project,
    accept: Accept,
    record: RunRecord,
    refusals: Sequence[Refusal],
    current: Promotion | None,
) -> NotAccepted:
    link = f"{MODELS}/{accept.name}"
    stays = f"{link} stays {current.run_id}." if current else f"There is no {link} yet."
    error = NotAccepted(
        f"{record.run_id} succeeded but was not accepted: {refusals_text(refusals)}.",
        exists=f"Its record and its files are in {project.run(record.run_id)}. {stays}",
        next_command=f"orch logs {record.run_id}    # or: orch models",
    )
    error.record = record
    return error


def _was(before: Promotion | None) -> str:
    return f"; before: {before.run_id}" if before else ""
