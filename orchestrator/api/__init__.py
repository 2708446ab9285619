"""The verbs of orch for scripts and scheduled jobs. They call the rooms below and contain no logic."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api.cancelling import cancel
    from orchestrator.api.comparing import compare
    from orchestrator.api.imaging import bake_image, delete_image, list_images
    from orchestrator.api.lease import plan, up
    from orchestrator.api.listing import history
    from orchestrator.api.live_status import top
    from orchestrator.api.pulling import pull, pull_all
    from orchestrator.api.recording import record
    from orchestrator.api.reporting import report as report
    from orchestrator.api.rerunning import Rerun as Rerun
    from orchestrator.api.rerunning import rerun
    from orchestrator.api.resume_checking import resume_check
    from orchestrator.api.run_job import run
    from orchestrator.api.sweeping import sweep
    from orchestrator.api.sweeping import sweep_status as sweep_status
    from orchestrator.api.training import attach, train
    from orchestrator.api.watching import watch
    from orchestrator.leases.consent import Approve
    from orchestrator.leases.costs import costs
    from orchestrator.leases.down import down
    from orchestrator.leases.down_all import ApproveDeletion

    # used by the command line only
    from orchestrator.leases.down_all import Target as Target
    from orchestrator.leases.down_all import command_of as command_of
    from orchestrator.leases.gc import clouds_of as clouds_of
    from orchestrator.leases.gc import gc as gc
    from orchestrator.leases.image_list import image_price as image_price
    from orchestrator.leases.status import leases_elsewhere as leases_elsewhere
    from orchestrator.leases.status import status
    from orchestrator.model import LeaseStatus, Progress, RunRecord
    from orchestrator.model.progress import Output
    from orchestrator.plan import Plan as Plan
    from orchestrator.profile.nearby import no_such_file as no_such_file
    from orchestrator.profile.nearby import shown_path as shown_path
    from orchestrator.profile.overrides import redacted as redacted
    from orchestrator.profile.units import parse_duration as parse_duration
    from orchestrator.promotion.current import models, rollback
    from orchestrator.providers.local.store import state_home as state_home
    from orchestrator.runs.lint_check import hint as hint
    from orchestrator.runs.lint_check import lint as lint
    from orchestrator.runs.parameters import setting_meant as setting_meant
    from orchestrator.runs.space import refusal_of as refusal_of
    from orchestrator.session.project import Project as Project
    from orchestrator.session.watched import next_after_up as next_after_up
    from orchestrator.sizing.profile_change import change_profile as change_profile
    from orchestrator.sizing.profile_change import write_minimums as write_minimums
    from orchestrator.sizing.rightsize import similar_types as similar_types
    from orchestrator.sizing.size import Sized as Sized
    from orchestrator.sizing.size import size
    from orchestrator.stalls.on_machine import analyse as analyse
    from orchestrator.stalls.scratch_run import Options as Options
    from orchestrator.stalls.scratch_run import profile as profile
    from orchestrator.sweep.call import SweepCall as SweepCall
    from orchestrator.sweep.matrix import parse_matrix as parse_matrix

_HOME = {
    "Approve": "orchestrator.leases.consent",
    "ApproveDeletion": "orchestrator.leases.down_all",
    "LeaseStatus": "orchestrator.model",
    "Output": "orchestrator.model.progress",
    "Progress": "orchestrator.model",
    "RunRecord": "orchestrator.model",
    "attach": "orchestrator.api.training",
    "bake_image": "orchestrator.api.imaging",
    "cancel": "orchestrator.api.cancelling",
    "compare": "orchestrator.api.comparing",
    "costs": "orchestrator.leases.costs",
    "delete_image": "orchestrator.api.imaging",
    "down": "orchestrator.leases.down",
    "history": "orchestrator.api.listing",
    "list_images": "orchestrator.api.imaging",
    "models": "orchestrator.promotion.current",
    "plan": "orchestrator.api.lease",
    "pull": "orchestrator.api.pulling",
    "pull_all": "orchestrator.api.pulling",
    "record": "orchestrator.api.recording",
    "rerun": "orchestrator.api.rerunning",
    "resume_check": "orchestrator.api.resume_checking",
    "rollback": "orchestrator.promotion.current",
    "run": "orchestrator.api.run_job",
    "size": "orchestrator.sizing.size",
    "status": "orchestrator.leases.status",
    "sweep": "orchestrator.api.sweeping",
    "top": "orchestrator.api.live_status",
    "train": "orchestrator.api.training",
    "up": "orchestrator.api.lease",
    "watch": "orchestrator.api.watching",
}

_FOR_THE_COMMAND_LINE = {
    "Options": "orchestrator.stalls.scratch_run",
    "Plan": "orchestrator.plan",
    "Project": "orchestrator.session.project",
    "Rerun": "orchestrator.api.rerunning",
    "Sized": "orchestrator.sizing.size",
    "SweepCall": "orchestrator.sweep.call",
    "Target": "orchestrator.leases.down_all",
    "analyse": "orchestrator.stalls.on_machine",
    "change_profile": "orchestrator.sizing.profile_change",
    "clouds_of": "orchestrator.leases.gc",
    "command_of": "orchestrator.leases.down_all",
    "gc": "orchestrator.leases.gc",
    "image_price": "orchestrator.leases.image_list",
    "hint": "orchestrator.runs.lint_check",
    "leases_elsewhere": "orchestrator.leases.status",
    "lint": "orchestrator.runs.lint_check",
    "next_after_up": "orchestrator.session.watched",
    "no_such_file": "orchestrator.profile.nearby",
    "parse_duration": "orchestrator.profile.units",
    "parse_matrix": "orchestrator.sweep.matrix",
    "profile": "orchestrator.stalls.scratch_run",
    "refusal_of": "orchestrator.runs.space",
    "setting_meant": "orchestrator.runs.parameters",
    "shown_path": "orchestrator.profile.nearby",
    "report": "orchestrator.api.reporting",
    "state_home": "orchestrator.providers.local.store",
    "sweep_status": "orchestrator.api.sweeping",
    "redacted": "orchestrator.profile.overrides",
    "similar_types": "orchestrator.sizing.rightsize",
    "write_minimums": "orchestrator.sizing.profile_change",
}
"""Names that only the command line uses."""

__all__ = [
    "Approve",
    "ApproveDeletion",
    "LeaseStatus",
    "Output",
    "Progress",
    "RunRecord",
    "attach",
    "bake_image",
    "cancel",
    "compare",
    "costs",
    "delete_image",
    "down",
    "history",
    "list_images",
    "models",
    "plan",
    "pull",
    "pull_all",
    "record",
    "rerun",
    "resume_check",
    "rollback",
    "run",
    "size",
    "status",
    "sweep",
    "top",
    "train",
    "up",
    "watch",
]


def __getattr__(name: str) -> Any:
    """Import a verb when it is first used: `status` needs neither SSH nor a profile."""
    home = _HOME.get(name) or _FOR_THE_COMMAND_LINE.get(name)
    if home is None:
        raise AttributeError(f"module 'orchestrator.api' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
