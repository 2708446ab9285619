"""What is proven before a run begins: the stack, the first steps, the resume; and what stops it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from orchestrator.errors import StackMismatch
from orchestrator.ledger import FIRST, Draft
from orchestrator.model import Agent, Difference, Exit, ResumeCheck, RunRecord, StackFacts
from orchestrator.model.beside import Beside
from orchestrator.model.outcomes import Conclusion, ExitReason
from orchestrator.model.progress import doing, notice
from orchestrator.model.resume import Resumed
from orchestrator.runs import collect, record_file
from orchestrator.session.session import Session, attest_local, check_stack, stack_facts, told
from orchestrator.session.trees import Trees
from orchestrator.stack import Installed
from orchestrator.training.download import measure_duration, run_record
from orchestrator.training.options import RunOptions


def verified_stack(session: Session, timings: dict[str, float]) -> tuple[Installed, StackFacts]:
    """Install and verify the stack. Raises StackMismatch for a difference that the profile does not allow."""
    with measure_duration(timings, "install_s"):
        here = Beside(lambda: attest_local(session))
        installed = session.install()
        differences = check_stack(session, installed, here.result())
    stack: StackFacts = {
        **stack_facts(installed),
        "lock": session.lock().digest,
        "inherited": session.profile.train.inherited(),
        "differences": _plain(differences),
    }
    _refuse_undeclared(session, differences)
    return installed, stack


def compared(
    session: Session,
    local: Agent,
    trees: Trees,
    run_id: str,
    python: str,
    draft: Draft,
    options: RunOptions,
) -> Draft:
    """Return the draft with the verdict on the first steps here and there. Raises ParityMismatch."""
    from orchestrator.training import side_by_side

    timings = dict(draft.timings)
    with measure_duration(timings, "parity_s"), doing(session.progress, "Comparing the first steps"):
        verdict = side_by_side.compare_first_steps(session, local, trees, run_id, python, options)
    parity = side_by_side.as_json(verdict)
    draft = replace(draft, parity=parity, timings=timings)
    _refuse_mismatch(session, run_id, draft, parity, options)
    return draft


def resumable(session: Session, local: Agent, run_id: str, draft: Draft, timings: dict[str, float]) -> Draft:
    """Return the draft with the resume proof of this attempt, or of the one that it continues.

    Raises ResumeRefused.
    """
    before = session.ledger.lease().runs.get(run_id) if draft.attempt.retried != FIRST else None
    if before and before.draft.resume_proof:
        return replace(draft, resume_proof=before.draft.resume_proof)
    from orchestrator.training import resume

    with measure_duration(timings, "resume_proof_s"):
        proof = resume.prove(session, local)
    proved = replace(draft, resume_proof=proof.as_json())
    _refuse_unproven(session, run_id, proved, proof)
    return proved


def _refuse_undeclared(session: Session, differences: Sequence[Difference]) -> None:
    undeclared = [d for d in differences if not d.declared]
    if not undeclared:
        return
    listed = "\n".join(f"  {told(difference)}" for difference in undeclared)
    names = ", ".join(d.name for d in undeclared)
    raise StackMismatch(
        f"The machine's stack differs from the one here, and the profile does not allow that:\n{listed}",
        exists=f"{session.machine.id} is still running, at ${session.machine.price:.2f}/h.",
        next_command=f"fix the difference, or allow it by name: stack.allow: [{names}]",
    )


def _plain(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    return [asdict(difference) for difference in differences]


def _refuse_mismatch(
    session: Session, run_id: str, draft: Draft, parity: Mapping[str, Any], options: RunOptions
) -> None:
    if parity["verdict"] == Conclusion.IDENTICAL:
        return
    if not session.profile.parity.on_mismatch.stops(parity["verdict"]):
        notice(session.progress, f"Parity: {parity['verdict']}: {parity['detail']} The run continues.")
        return
    from orchestrator.training import side_by_side

    error = side_by_side.mismatch(session, run_id, parity, options)
    error.record = not_started(session, run_id, draft, "Parity stopped it.")
    raise error


def _refuse_unproven(session: Session, run_id: str, draft: Draft, found: ResumeCheck) -> None:
    if found.verdict != Resumed.EXACT:
        from orchestrator.training import resume

        error = resume.refusal(session, found)
        error.record = not_started(session, run_id, draft, "The resume proof stopped it.")
        raise error


def not_started(session: Session, run_id: str, draft: Draft, why: str) -> RunRecord:
    ended = collect.exit_json(Exit(None, None, ExitReason.NOT_STARTED, why))
    record = run_record(session, run_id, draft, exit=ended)
    record_file.write(record)
    return record
