"""What can go wrong, as a tree; every leaf has one exit code.

OrchError
├── LocalError                  1   this computer refused: a full disk, a missing permission
├── UsageError                  2   the command line, or a folder without a lease
│   ├── ProfileError            2   a profile, with file:line:column
│   └── Busy                    15  an active run, unfetched results or another command prevents it
│       ├── LockHeld            15  another computer holds a lock of the store
│       └── LockLost            15  a lock of the store expired before its holder was done
├── ProviderError(fault)        3 AUTH · 4 CAPACITY, QUOTA · 15 BUSY · 5 everything else
├── HostError                   8   contact with a machine was lost
│   ├── LoginRefused            8   the machine does not know the lease's key, or not yet
│   ├── HostKeyError            8   the machine could not prove that it is ours; nothing was sent
│   └── MalformedAnswer         8   the machine's answer is invalid; nothing of it was used
│       └── FileRefused         8   a file there is too large, or not a regular file; it was not downloaded
├── StackError                  5   the pinned packages could not be installed
│   └── StackMismatch           7   they were installed, and differ in a way that the profile does not allow
├── SyncError                   5   files here and there are not equal, or a path is not safe
├── StorageError                5   a store refused: no such bucket, an invalid key, or another reason
│   ├── StorageDenied           3   no credentials, expired ones, or ones without the permission
│   ├── StorageUnreachable      8   it did not answer, or throttles, and all retries failed
│   ├── Missing                 5   no such object
│   ├── Changed                 5   the object is not, or no longer, at the expected version
│   └── Corrupt                 5   its bytes do not match its checksum, in transit or at rest
├── RunFailed                   6   the training itself failed
│   ├── OutOfMemory             10   the memory of the machine, or of its GPU, was used up
│   ├── Preempted               11   the cloud preempted its spot machine
│   ├── RunLost                 12   its machine was lost while it was active
│   ├── RunCancelled            13   a user cancelled it
│   ├── ResultsLost             14   results were lost with the machine, or cannot be downloaded
│   ├── Stalled                 16   it made no progress, and was ended
│   ├── LossNotFinite           17   its loss was not finite, and it was ended, as the profile says
│   ├── DiskFull                18   the machine's disk was used up
│   └── DeadlineReached         19   the machine reached its deadline
├── ParityMismatch              7   the first steps on both sides differ
│   ├── ResumeRefused           7   it was not proven that it resumes from its checkpoints
│   └── DataNotSent             7   it reads data here that were not sent to the machine
├── NotAccepted                 20  it succeeded, but the profile does not accept its model
├── LintRefused                 9   lint found hazards in the script, and was told to stop for them
└── CleanupUnproven             8   something may still exist, and cost money

0 is success, 130 an interrupt by the user (what runs on the machine goes on).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

EXIT_OK = 0
EXIT_USAGE = 2
EXIT_AUTH = 3
EXIT_CAPACITY = 4
EXIT_PROVISION = 5
EXIT_RUN = 6
EXIT_PARITY = 7
EXIT_CONTACT = 8
EXIT_LINT = 9
EXIT_OUT_OF_MEMORY = 10
EXIT_PREEMPTED = 11
EXIT_RUN_LOST = 12
EXIT_CANCELLED = 13
EXIT_RESULTS_LOST = 14
EXIT_BUSY = 15
EXIT_STALLED = 16
EXIT_NOT_FINITE = 17
EXIT_DISK_FULL = 18
EXIT_DEADLINE = 19
EXIT_NOT_ACCEPTED = 20
EXIT_INTERRUPTED = 130

NOTHING_CREATED = "Nothing was created; nothing costs money."
"""What exists after an error before a machine was requested."""

NOTHING_RUNS = "Nothing is running; nothing costs money."
"""What exists after an error once the machine is gone."""

_WORTH_REPEATING = frozenset(
    (EXIT_CAPACITY, EXIT_CONTACT, EXIT_PREEMPTED, EXIT_RUN_LOST, EXIT_RESULTS_LOST, EXIT_BUSY, EXIT_STALLED)
)


class Fault(StrEnum):
    """Why a provider refused, by structured code and never by message text."""

    TRANSIENT = "transient"
    CAPACITY = "capacity"
    QUOTA = "quota"
    AUTH = "auth"
    INVALID = "invalid"
    CONFLICT = "conflict"
    BUSY = "busy"
    UNKNOWN = "unknown"


class OrchError(Exception):
    """What happened, what still exists (and costs), and the next command.

    `message` is one or more full sentences; `exists` says what is left and its price, None if nothing was
    created; `next_command` can be typed as it is.
    """

    exit_code = 1
    once_ended: str | None = None
    """The next command once the machine in question was deleted; None: the command that failed, again."""

    def __init__(self, message: str, *, exists: str | None = None, next_command: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.exists = exists
        self.next_command = next_command

    @property
    def kind(self) -> str:
        """The name of this class, as `--json` prints it."""
        return type(self).__name__

    @property
    def worth_repeating(self) -> bool:
        """Whether the same command may succeed with nothing changed: a scheduler retries, else it alerts."""
        return self.exit_code in _WORTH_REPEATING


class LocalError(OrchError):
    """This computer refused; nothing that was created elsewhere is affected."""


class BeforeTheRun(KeyboardInterrupt):
    """The user interrupted `train` before its run was started. Its text is the command that repeats it."""


class Interrupted(KeyboardInterrupt):
    """The user interrupted a call. `exists`: what is left; `next_command`: what goes on from there."""

    def __init__(self, exists: str, next_command: str) -> None:
        super().__init__(f"{exists}\nNext: {next_command}")
        self.exists, self.next_command = exists, next_command


class UsageError(OrchError):
    exit_code = EXIT_USAGE


class ProfileError(UsageError):
    """A profile is invalid. `where` is "file:line:column", from 1; only the file if it could not be read."""

    def __init__(self, message: str, *, where: str, next_command: str | None = None) -> None:
        super().__init__(f"{where}: {message}", next_command=next_command)
        self.where = where


class Busy(UsageError):
    """Refused because of an active run, unfetched results, or another command. Nothing was changed.

    The same call succeeds once these have ended or were fetched.
    """

    exit_code = EXIT_BUSY


class LockHeld(Busy):
    """Another client holds a lock of a store."""

    def __init__(self, lock: str, owner: str = "another client") -> None:
        super().__init__(
            f"{lock} is held by {owner}.",
            exists="Nothing was changed by this call.",
            next_command="orch status    # then the same command again: a lock that is not renewed expires",
        )
        self.owner = owner


class LockLost(Busy):
    """A lock of a store expired, or was taken over, before its holder was done."""

    def __init__(self, lock: str) -> None:
        super().__init__(
            f"{lock} is not held any more: this computer was too slow to renew it, or could not "
            "reach the store. Another client may go on in its place.",
            next_command="orch status    # then the same command again",
        )


class ProviderError(OrchError):
    """A cloud refused a call. `attempts`: all create calls that were tried.

    `undecided`: the machine of a create call may exist all the same. `everywhere`: a quota covers all regions
    together. `there_alone`: another region may work.
    """

    attempts: Sequence[Mapping[str, object]] = ()
    undecided = False
    everywhere = False
    there_alone = False

    def __init__(
        self,
        fault: Fault,
        message: str,
        *,
        code: str = "",
        exists: str | None = None,
        next_command: str | None = None,
    ) -> None:
        super().__init__(message, exists=exists, next_command=next_command)
        self.fault = fault
        self.code = code

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        own = {Fault.AUTH: EXIT_AUTH, Fault.CAPACITY: EXIT_CAPACITY, Fault.QUOTA: EXIT_CAPACITY}
        return {**own, Fault.BUSY: EXIT_BUSY}.get(self.fault, EXIT_PROVISION)

    @property
    def worth_repeating(self) -> bool:
        return self.fault in (Fault.CAPACITY, Fault.BUSY, Fault.TRANSIENT)


class HostError(OrchError):
    exit_code = EXIT_CONTACT


class LoginRefused(HostError):
    """The machine proved its identity, but its login account does not exist yet, or refuses the key."""


class HostKeyError(HostError):
    """The key that the machine showed is not the one that its provider vouched for."""


class MalformedAnswer(HostError):
    """The machine gave an answer that orch's runtime never gives; nothing of it was used.

    Asking again does not help, so callers that retry a HostError do not retry this one.
    """


class FileRefused(MalformedAnswer):
    """A file of the machine was not downloaded: too large, not a regular file, or not as announced."""


class StackError(OrchError):
    exit_code = EXIT_PROVISION


class StackMismatch(StackError):
    exit_code = EXIT_PARITY


class SyncError(OrchError):
    exit_code = EXIT_PROVISION


class StorageFault(StrEnum):
    """Why a store refused, by structured code and never by message text."""

    KEY = "key"
    URL = "url"
    BUCKET = "bucket"
    REGION = "region"
    REQUESTER_PAYS = "requester_pays"
    AUTH = "auth"
    DENIED = "denied"
    THROTTLED = "throttled"
    UNREACHABLE = "unreachable"
    MISSING = "missing"
    CHANGED = "changed"
    CORRUPT = "corrupt"
    TOO_LARGE = "too_large"
    UNKNOWN = "unknown"


class StorageError(OrchError):
    """The only error that a store raises, apart from LocalError for a file of this computer."""

    exit_code = EXIT_PROVISION

    def __init__(
        self,
        fault: StorageFault,
        message: str,
        *,
        code: str = "",
        exists: str | None = None,
        next_command: str | None = None,
    ) -> None:
        super().__init__(message, exists=exists, next_command=next_command)
        self.fault = fault
        self.code = code


class StorageDenied(StorageError):
    exit_code = EXIT_AUTH


class StorageUnreachable(StorageError):
    exit_code = EXIT_CONTACT


class Missing(StorageError):
    def __init__(self, url: str, key: str, *, version: str | None = None) -> None:
        of = f" of version {version}" if version else ""
        super().__init__(StorageFault.MISSING, f"{url} has no object {key}{of}.")
        self.key = key


class Changed(StorageError):
    """`expected` and `found` are versions of the object: None if it is absent, "" if not known."""

    def __init__(self, url: str, key: str, *, expected: str | None, found: str | None = "") -> None:
        wanted = "to be absent" if expected is None else f"at version {expected}"
        now = "it is gone" if found is None else f"it is at {found}" if found else "it is at another"
        super().__init__(StorageFault.CHANGED, f"{key} in {url} was expected {wanted}; {now}.")
        self.key, self.expected, self.found = key, expected, found


class Corrupt(StorageError):
    def __init__(self, url: str, key: str, detail: str) -> None:
        super().__init__(StorageFault.CORRUPT, f"{key} in {url} is damaged: {detail}")
        self.key = key


class RunFailed(OrchError):
    """The training failed. `record` is the RunRecord, if one could be pulled nevertheless."""

    exit_code = EXIT_RUN
    record: object | None = None


class OutOfMemory(RunFailed):
    exit_code = EXIT_OUT_OF_MEMORY


class Preempted(RunFailed):
    exit_code = EXIT_PREEMPTED


class RunLost(RunFailed):
    """The machine was lost while the run was active, or how the run ended is unknown."""

    exit_code = EXIT_RUN_LOST


class RunCancelled(RunFailed):
    exit_code = EXIT_CANCELLED


class ResultsLost(RunFailed):
    """A run's results were lost with its machine, or cannot be downloaded."""

    exit_code = EXIT_RESULTS_LOST


class Stalled(RunFailed):
    exit_code = EXIT_STALLED


class LossNotFinite(RunFailed):
    exit_code = EXIT_NOT_FINITE


class DiskFull(RunFailed):
    exit_code = EXIT_DISK_FULL


class DeadlineReached(RunFailed):
    exit_code = EXIT_DEADLINE


class ParityMismatch(OrchError):
    """The first steps differ. `record` is the RunRecord with the verdict, of a run that was not started."""

    exit_code = EXIT_PARITY
    record: object | None = None


class ResumeRefused(ParityMismatch):
    """It was not proven that the run resumes from its checkpoints."""


class DataNotSent(ParityMismatch):
    """A run on this computer reads data that are neither sent as code nor declared as data."""


class NotAccepted(OrchError):
    """The run succeeded, but breaks a rule of the profile's `accept`. `record` is its RunRecord."""

    exit_code = EXIT_NOT_ACCEPTED
    record: object | None = None


class LintRefused(OrchError):
    """Lint found errors: the script would fail, or train on something else, on another machine."""

    exit_code = EXIT_LINT


class CleanupUnproven(OrchError):
    exit_code = EXIT_CONTACT
