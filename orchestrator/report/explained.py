"""A page for each kind of error: what happened, what is left and may cost, what to do. docs/errors.md is made
of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Explanation:
    """`exits`: the exit codes of such an error. `left`: what exists then, and may cost."""

    code: str
    title: str
    exits: tuple[int, ...]
    what: str
    left: str
    next: str

    def as_json(self) -> dict[str, object]:
        return asdict(self)


_AS_BEFORE = "What existed before still exists. Nothing was created by this call."
_RUNS_ON = "The machine runs on, and costs, until its deadline or `orch down`."
_HOME = "The record, the output and the files that were written are in `runs/RUN/`."
_GONE = "The machine is gone and costs nothing more."

_PAGES = (
    Explanation(
        "local",
        "This computer refused",
        (1,),
        "A file could not be read or written here, a disk is full, a port is taken, or a program is missing.",
        "Everything elsewhere is untouched: a machine, a run and its results stay as they were.",
        "Mend what the message names, then repeat the command: what was done already is not done again.",
    ),
    Explanation(
        "usage",
        "The command cannot be carried out as it was given",
        (2,),
        "An option, a run id, a lease or a folder is not what the command needs.",
        _AS_BEFORE,
        "The message names the nearest ids or options. `orch VERB --help` lists all.",
    ),
    Explanation(
        "profile",
        "The profile has a mistake",
        (2,),
        "A key is unknown, a value has the wrong type or unit, or two settings exclude each other. The "
        "message begins with file, line and column.",
        _AS_BEFORE,
        "Correct that line: the nearest valid key is named. docs/profile.md has every key; `orch plan "
        "PROFILE` checks a profile without creating anything.",
    ),
    Explanation(
        "busy",
        "Something else comes first",
        (15,),
        "A run is active on the machine, results were not pulled yet, or another command is at work.",
        f"Nothing was changed. {_RUNS_ON}",
        "Wait and repeat, or settle it: `orch status` shows what is in the way, `orch pull` downloads "
        "results, `orch train --parallel` starts a run beside another. A scheduler may simply retry.",
    ),
    Explanation(
        "lock-held",
        "Another computer holds a lock of the store",
        (15,),
        "Two computers of a team work on the same lease or model. One waits, so that one machine is created "
        "and one model is current.",
        "Nothing was changed by this call.",
        "Repeat it. A lock that its holder does not renew expires by itself.",
    ),
    Explanation(
        "lock-lost",
        "A lock of the store expired before the work was done",
        (15,),
        "This computer slept, was too slow, or could not reach the store. Another one may have gone on.",
        "What this call had created is noted in the ledger or was deleted.",
        "`orch status`, then repeat the command.",
    ),
    Explanation(
        "cloud-auth",
        "The cloud does not accept the credentials, or they may not do this",
        (3,),
        "There are no credentials, they expired, or a permission is missing. The message names the call.",
        "A machine that exists already runs on: it ends itself at its deadline.",
        "Log in again (`aws sso login`, `gcloud auth application-default login`) or ask for the permission "
        "that is named. `orch doctor aws` or `orch doctor gcp` checks all that `orch up` needs.",
    ),
    Explanation(
        "cloud-capacity",
        "No zone that the profile allows has such a machine now",
        (4,),
        "Each zone and type was tried in the order of price; the attempts are listed with the cloud's "
        "reason.",
        "Nothing was created, or what was created was deleted.",
        "Retry later, allow more regions or types in the profile, or set `resources.spot: false`. `orch "
        "plan` shows what else would do.",
    ),
    Explanation(
        "cloud-quota",
        "The account may not have as many of these machines",
        (4,),
        "The quota of the region, or of all regions together, is less than the machine needs. New accounts "
        "have none for GPUs.",
        "Nothing was created.",
        "Ask the cloud for the quota that is named (hours to days), or choose another type or region.",
    ),
    Explanation(
        "cloud-busy",
        "The cloud is still at work on the machine",
        (15,),
        "An earlier request for it has not ended.",
        _RUNS_ON,
        "Repeat the command.",
    ),
    Explanation(
        "cloud-conflict",
        "The cloud has something of this name, or in another state",
        (5,),
        "What was asked for does not fit what exists there.",
        "The message says what exists.",
        "`orch status --live` shows what the cloud has; `orch down` ends it.",
    ),
    Explanation(
        "cloud-invalid",
        "The cloud refuses the request as it is",
        (5,),
        "A type, image, network or policy does not fit the others. The message has the cloud's words.",
        "Nothing was created, or what was created was deleted.",
        "`orch doctor CLOUD PROFILE` names the setting in most cases.",
    ),
    Explanation(
        "cloud-transient",
        "The cloud failed several times",
        (5,),
        "Server errors, broken connections or throttling did not pass while the call was repeated.",
        "The message says whether a machine may exist. `orch up` finds it and uses it.",
        "Repeat the command later; `orch status --live` asks the cloud what exists.",
    ),
    Explanation(
        "cloud-unknown",
        "The cloud gave an answer that orch does not know",
        (5,),
        "The message has the cloud's code and words.",
        "The message says whether a machine may exist.",
        "`orch status --live`, then `orch down` if something is left.",
    ),
    Explanation(
        "host",
        "Contact with the machine was lost",
        (8,),
        "The connection broke, the machine does not answer, or it never came up.",
        f"A run goes on without the connection. {_RUNS_ON}",
        "`orch status --live` asks the cloud for the machine; `orch logs -f` follows the run again.",
    ),
    Explanation(
        "login-refused",
        "The machine does not accept the lease's key",
        (8,),
        "It proved itself by its host key, but does not let the user in: during its first boot the account "
        "may not exist yet, or something removed it.",
        _RUNS_ON,
        "Repeat the command; if it stays so, `orch down` and `orch up`.",
    ),
    Explanation(
        "host-key",
        "The machine could not prove that it is yours",
        (8,),
        "The host key that it showed is not the one that the cloud vouches for. Somebody may answer in its "
        "place.",
        "Nothing was sent to it: no data, no code, no secret. The machine may run on, and cost.",
        "`orch down --discard` deletes the machine by the cloud's own interface. Find out who answers at "
        "that address before you create another.",
    ),
    Explanation(
        "malformed-answer",
        "The machine answered what orch's programs there never say",
        (8,),
        "The machine, or orch's programs on it, were changed. Nothing of the answer was used.",
        _RUNS_ON,
        "`orch down` works without the machine's answer. Trust nothing that comes from this machine.",
    ),
    Explanation(
        "file-refused",
        "A file of the machine was not fetched",
        (8,),
        "It is too large, is a pipe or device, or is not what was announced.",
        "The file stays on the machine; other files came.",
        "Remove or rename it there (`orch ssh`), then `orch pull --again`.",
    ),
    Explanation(
        "stack",
        "The pinned packages could not be installed",
        (5,),
        "A package is not in the index, has no build for this Python or processor, or its hash is another.",
        "The message says whether the machine was deleted. Its uv says the reason.",
        "Lock again for the machine's platform (`uv pip compile --generate-hashes --python-platform "
        "linux`), then repeat the command.",
    ),
    Explanation(
        "stack-mismatch",
        "The packages are installed, and something that nobody declared differs",
        (7,),
        "A file of a package was changed, a package is there that the lock does not have, or a version "
        "differs.",
        _RUNS_ON,
        "The message names it. Add it to the lock, or allow it by name with `stack.allow`.",
    ),
    Explanation(
        "sync",
        "What is here and what is there are not the same",
        (5,),
        "A file changed while it was sent, an object of a bucket is another than before, or a path must not "
        "be written here.",
        f"Files that were complete stay; nothing half came into their place. {_RUNS_ON}",
        "Repeat the command: only what is missing is sent again. `orch train --new-data` accepts data that "
        "changed in a bucket.",
    ),
    Explanation(
        "storage",
        "The store refused",
        (5,),
        "There is no such bucket, a key is not allowed, or the answer is not known.",
        "What was stored before is still there.",
        "Check `store:` in the profile or ORCH_LEDGER; `orch doctor` tries to reach it.",
    ),
    Explanation(
        "storage-denied",
        "The store does not accept the credentials, or they may not do this",
        (3,),
        "There are no credentials, they expired, or a permission on the bucket is missing.",
        "What was stored before is still there.",
        "Log in again, or ask for the permission that is named. docs/stores.md says what a store needs.",
    ),
    Explanation(
        "storage-unreachable",
        "The store does not answer",
        (8,),
        "It was asked several times. The network, or the store, is down or throttled.",
        "A machine and its run go on. What could not be stored stays where it is.",
        "Repeat the command later.",
    ),
    Explanation(
        "missing",
        "The store has no such object",
        (5,),
        "It was deleted, or never written.",
        "Other objects are untouched.",
        "`orch runs` and `orch models` list what there is.",
    ),
    Explanation(
        "changed",
        "An object of the store was replaced meanwhile",
        (5,),
        "Another computer, or a machine that still trains, wrote it.",
        "The newer object is untouched.",
        "Repeat the command: it then works on the newer one.",
    ),
    Explanation(
        "corrupt",
        "Bytes of the store are not those of their checksum",
        (5,),
        "They were damaged on their way, or in the store. They were asked for twice.",
        "Nothing of the damaged object was used.",
        "Repeat the command. If it stays so, delete the object; `orch pull` has the original while its "
        "machine exists.",
    ),
    Explanation(
        "run-failed",
        "The training failed",
        (6,),
        "The command ended with an error, or by a signal. Its last lines are shown.",
        f"The record, the output and the files that were written are in `runs/RUN/`. {_RUNS_ON}",
        "Correct the script, then `orch train --run-id RUN --retry-failed`, or a new run.",
    ),
    Explanation(
        "out-of-memory",
        "The memory was used up",
        (10,),
        "The machine's memory, the limit of the run, or the GPU's memory was not enough.",
        f"The record, the output and the files that were written are in `runs/RUN/`. {_RUNS_ON}",
        "`orch size PROFILE --write` measures what the training needs and writes it into the profile. For a "
        "GPU: a smaller batch, mixed precision, or a GPU with more memory.",
    ),
    Explanation(
        "preempted",
        "The cloud took its spot machine back",
        (11,),
        "Spot machines are cheaper and can be taken at any time.",
        f"{_GONE} The output that came, and the last whole checkpoint, are here or in the store.",
        "Repeat the command. With `train.checkpoints` and `retry: {interruption: N}` in the profile, runs "
        "continue by themselves.",
    ),
    Explanation(
        "run-lost",
        "The machine went away during the run",
        (12,),
        "It failed, was deleted by somebody, or orch's program there was killed: how the run ended is not "
        "known.",
        "`orch status --live` shows whether a machine is left. The output that came is here.",
        "Repeat the command: the run id is tried again as a new attempt.",
    ),
    Explanation(
        "run-cancelled",
        "The run was cancelled",
        (13,),
        "`orch cancel` ended it, here or on another computer.",
        f"The record, the output and the files that were written are in `runs/RUN/`. {_RUNS_ON}",
        "`orch pull` downloads what it wrote; `orch down` ends the machine.",
    ),
    Explanation(
        "results-lost",
        "Results of the run will not come home",
        (14,),
        "The machine was gone before they were pulled, or the run completed without an output that the "
        "profile names.",
        "What came is in `runs/RUN/`; `not_fetched` in its run.json names the rest.",
        "Repeat the command. A `store:` in the profile keeps results that nobody pulled; `outputs:` names "
        "what a run is to leave.",
    ),
    Explanation(
        "stalled",
        "The run made no progress, and was ended",
        (16,),
        "It printed nothing, finished no step and used no processor for as long as `stall` allows.",
        f"The record, the output and the files that were written are in `runs/RUN/`. {_RUNS_ON}",
        "Repeat the command. If it stalls again at the same place, see where it waits: `orch ssh` and "
        "py-spy.",
    ),
    Explanation(
        "loss-not-finite",
        "The loss is not a number, and the run was ended",
        (17,),
        "The loss became NaN or infinite, and the profile says `train.on_nan: stop`.",
        f"{_HOME} Copies of checkpoints from before are kept.",
        "A smaller learning rate, clipped gradients or checked data; then train again.",
    ),
    Explanation(
        "disk-full",
        "The machine's disk was used up",
        (18,),
        "Data, checkpoints or outputs took all of `resources.disk`.",
        f"The record, the output and the files that were written are in `runs/RUN/`. {_RUNS_ON}",
        "Ask for more `resources.disk`, keep fewer checkpoints, then `orch down` and `orch up`.",
    ),
    Explanation(
        "deadline-reached",
        "The time of the machine was up",
        (19,),
        "`max_duration` ended it, whatever ran on it.",
        f"{_GONE} What was written near the end was saved as far as there was time.",
        "Raise `max_duration`, or let the run continue from its checkpoints.",
    ),
    Explanation(
        "parity-mismatch",
        "The first steps here and there are not the same",
        (7,),
        "`--local-parity` found a first tensor that differs, or could not compare. The report names it and, "
        "where that was confirmed by a trial, the cause.",
        f"The run was not started. {_RUNS_ON}",
        "Follow the treatment in the report (docs/parity.md). `parity.on_mismatch: warn` reports and goes "
        "on.",
    ),
    Explanation(
        "resume-refused",
        "It is not proven that an interrupted run would be the same",
        (7,),
        "`--resume-proof` interrupted a short training: its checkpoint lacks something.",
        f"The run was not started. {_RUNS_ON}",
        "Save what is named in the checkpoint as well (docs/resume.md).",
    ),
    Explanation(
        "data-not-sent",
        "The training reads files here that the machine was not sent",
        (7,),
        "They are ignored by git, outside of the project, or not declared as data.",
        f"The run was not started. {_RUNS_ON}",
        "`orch init --add-data PATH` declares them in the profile.",
    ),
    Explanation(
        "not-accepted",
        "The run succeeded, and its model was not accepted",
        (20,),
        "It breaks a rule of `accept:` in the profile: a metric, parity, or the model check.",
        "The model is in `runs/RUN/`. The current model is still the one before.",
        "`orch report RUN` shows the rule and the numbers.",
    ),
    Explanation(
        "lint-refused",
        "The script has hazards, and was asked to stop for them",
        (9,),
        "`--strict`, or `strict = true`, stops where something would fail or differ on another machine.",
        _AS_BEFORE,
        "`orch lint` lists each with its fix; `orch explain ORC401` explains one rule.",
    ),
    Explanation(
        "cleanup-unproven",
        "It is not proven that everything was deleted",
        (8,),
        "The cloud did not confirm the end of the machine, or could not be asked.",
        "The machine may still exist, and cost, until its deadline. Its id is in the message.",
        "`orch down` again: it asks by id until the cloud says that the machine is gone.",
    ),
)

PAGES: Mapping[str, Explanation] = {page.code: page for page in _PAGES}
"""By code, in the order of the tree in errors.py."""


def list_text(pages: Sequence[Explanation]) -> str:
    """A line for each page."""
    width = max(len(page.code) for page in pages)
    return "\n".join(f"{page.code.ljust(width)}  {page.title}" for page in pages)


def text_of(page: Explanation) -> str:
    """A page for a terminal."""
    exits = " or ".join(map(str, page.exits))
    return (
        f"{page.code}: {page.title} (exit code {exits})\n\n{page.what}\n\nWhat is left: {page.left}\n\n"
        f"Next: {page.next}"
    )
