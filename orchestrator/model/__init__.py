"""The nouns that cross seams, and the protocols Provider and Host.

Plain frozen dataclasses, quick to import. Sizes are bytes, durations seconds, times aware UTC
datetimes, prices US dollars an hour, hashes lower-case hex SHA-256.
"""

from .checks import Check, CheckState, Readiness, Topic, Wanted
from .hosts import FAR_BASE, LARGEST_FILE, OUTPUT, Agent, Channel, Completed, Host
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
    Provider,
)
from .needs import AcceleratorNeed, Bound, Need, Offer
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
from .runs import Divergence, DriftBand, Exit, GpuRoom, Job, RecordedFact, Room, RunState, Tried, Verdict
from .stacks import Difference, Distribution, Fingerprint, Lock, Pin, is_allowed
from .trees import Entry, Manifest, NotFetched, Refused, TreeLink

__all__ = [
    "FAR_BASE",
    "LABEL_ATTEMPT",
    "LABEL_EXPIRES",
    "LABEL_LASTS",
    "LABEL_LEASE",
    "LABEL_OWNER",
    "LABEL_SPEC",
    "LARGEST_FILE",
    "MODEL_CHECK",
    "OUTPUT",
    "PULL",
    "RUN_SCHEMA",
    "AcceleratorNeed",
    "Agent",
    "Bound",
    "CancelReport",
    "Channel",
    "Check",
    "CheckState",
    "Completed",
    "Difference",
    "Distribution",
    "Divergence",
    "DownReport",
    "DriftBand",
    "Ending",
    "Endpoint",
    "Entry",
    "Exit",
    "Fingerprint",
    "GpuRoom",
    "Host",
    "Job",
    "Labels",
    "LeaseStatus",
    "Lock",
    "Machine",
    "MachineSpec",
    "MachineState",
    "Manifest",
    "Need",
    "NotFetched",
    "Offer",
    "Pin",
    "Progress",
    "Provider",
    "PullReport",
    "Readiness",
    "RecordedFact",
    "Refused",
    "Room",
    "RunRecord",
    "RunState",
    "Silent",
    "Topic",
    "TreeLink",
    "Tried",
    "Verdict",
    "Wanted",
    "is_allowed",
]
