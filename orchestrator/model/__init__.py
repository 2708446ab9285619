"""The types that rooms share, and the protocols Provider and Host.

Plain frozen dataclasses; a module is imported when one of its names is first used. Sizes are bytes, durations
seconds, times aware UTC datetimes, prices US dollars an hour, hashes lower-case hex SHA-256.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checks import Check, CheckState, Readiness, Topic, Wanted
    from .disks import AS_MADE, DiskKind, DiskMarket, Volume
    from .hosts import FAR_BASE, LARGEST_FILE, OUTPUT, Agent, Channel, Completed, Host
    from .images import LABEL_BASE, LABEL_STACK, ImageMarket, ImageState, MachineImage
    from .machines import (
        LABEL_ATTEMPT,
        LABEL_EXPIRES,
        LABEL_LASTS,
        LABEL_LEASE,
        LABEL_OWNER,
        LABEL_SPEC,
        Ending,
        Endpoint,
        Labels,
        Machine,
        MachineSpec,
        MachineState,
        NotYet,
        Partial,
        Provider,
        unseen_in,
    )
    from .needs import AcceleratorNeed, Bound, Need, Offer, Place
    from .outcomes import Conclusion, ExitReason, Kind, Outcome, Stage
    from .progress import Progress, Silent
    from .records import (
        MODEL_CHECK,
        PULL,
        RUN_SCHEMA,
        CancelReport,
        DownReport,
        LeaseStatus,
        PullReport,
        RunRecord,
    )
    from .resume import ResumeCheck
    from .run_json import (
        Artifact,
        AttemptFacts,
        CodeFacts,
        CostFacts,
        DataFacts,
        Exited,
        MachineFacts,
        NodeFacts,
        NotWritten,
        RequestFacts,
        StackFacts,
        Unfetched,
    )
    from .runs import Exit, GpuRoom, Job, Room, RunState
    from .stacks import Difference, Distribution, Fingerprint, Lock, Pin, is_allowed
    from .trees import Entry, Manifest, NotFetched, Refused, TreeLink
    from .verdicts import Divergence, DriftBand, Reason, RecordedFact, Subject, Tried, Verdict

__all__ = [
    "AS_MADE",
    "FAR_BASE",
    "LABEL_ATTEMPT",
    "LABEL_BASE",
    "LABEL_EXPIRES",
    "LABEL_LASTS",
    "LABEL_LEASE",
    "LABEL_OWNER",
    "LABEL_SPEC",
    "LABEL_STACK",
    "LARGEST_FILE",
    "MODEL_CHECK",
    "OUTPUT",
    "PULL",
    "RUN_SCHEMA",
    "AcceleratorNeed",
    "Agent",
    "Artifact",
    "AttemptFacts",
    "Bound",
    "CancelReport",
    "Channel",
    "Check",
    "CheckState",
    "CodeFacts",
    "Completed",
    "Conclusion",
    "CostFacts",
    "DataFacts",
    "Difference",
    "DiskKind",
    "DiskMarket",
    "Distribution",
    "Divergence",
    "DownReport",
    "DriftBand",
    "Ending",
    "Endpoint",
    "Entry",
    "Exit",
    "ExitReason",
    "Exited",
    "Fingerprint",
    "GpuRoom",
    "Host",
    "ImageMarket",
    "ImageState",
    "Job",
    "Kind",
    "Labels",
    "LeaseStatus",
    "Lock",
    "Machine",
    "MachineFacts",
    "MachineImage",
    "MachineSpec",
    "MachineState",
    "Manifest",
    "Need",
    "NodeFacts",
    "NotFetched",
    "NotWritten",
    "NotYet",
    "Offer",
    "Outcome",
    "Partial",
    "Pin",
    "Place",
    "Progress",
    "Provider",
    "PullReport",
    "Readiness",
    "Reason",
    "RecordedFact",
    "Refused",
    "RequestFacts",
    "ResumeCheck",
    "Room",
    "RunRecord",
    "RunState",
    "Silent",
    "StackFacts",
    "Stage",
    "Subject",
    "Topic",
    "TreeLink",
    "Tried",
    "Unfetched",
    "Verdict",
    "Volume",
    "Wanted",
    "is_allowed",
    "unseen_in",
]

_NAMES = {
    "disks": "AS_MADE DiskKind DiskMarket Volume",
    "hosts": "FAR_BASE LARGEST_FILE OUTPUT Agent Channel Completed Host",
    "images": "LABEL_BASE LABEL_STACK ImageMarket ImageState MachineImage",
    "machines": (
        "LABEL_ATTEMPT LABEL_EXPIRES LABEL_LASTS LABEL_LEASE LABEL_OWNER LABEL_SPEC Ending Endpoint "
        "Labels Machine MachineSpec MachineState NotYet Partial Provider unseen_in"
    ),
    "records": "MODEL_CHECK PULL RUN_SCHEMA CancelReport DownReport LeaseStatus PullReport RunRecord",
    "needs": "AcceleratorNeed Bound Need Offer Place",
    "run_json": (
        "Artifact AttemptFacts CodeFacts CostFacts DataFacts Exited MachineFacts NodeFacts NotWritten "
        "RequestFacts StackFacts Unfetched"
    ),
    "checks": "Check CheckState Readiness Topic Wanted",
    "outcomes": "Conclusion ExitReason Kind Outcome Stage",
    "stacks": "Difference Distribution Fingerprint Lock Pin is_allowed",
    "runs": "Exit GpuRoom Job Room RunState",
    "trees": "Entry Manifest NotFetched Refused TreeLink",
    "progress": "Progress Silent",
    "resume": "ResumeCheck",
    "verdicts": "Divergence DriftBand Reason RecordedFact Subject Tried Verdict",
}
"""The names of each module."""

_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
