"""Pages about errors of commands, clouds, machines, packages and stores."""

from __future__ import annotations

from orchestrator.report.explained.page import AS_BEFORE, RUNS_ON, Explanation

PAGES = (
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
        AS_BEFORE,
        "The message names the nearest ids or options. `orch VERB --help` lists all.",
    ),
    Explanation(
        "profile",
        "The profile has a mistake",
        (2,),
        "A key is unknown, a value has the wrong type or unit, or two settings exclude each other. The "
        "message begins with file, line and column.",
        AS_BEFORE,
        "Correct that line: the nearest valid key is named. docs/profile.md has every key; `orch plan "
        "PROFILE` checks a profile without creating anything.",
    ),
    Explanation(
        "busy",
        "Something else comes first",
        (15,),
        "A run is active on the machine, results were not pulled yet, or another command is at work.",
        f"Nothing was changed. {RUNS_ON}",
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
        RUNS_ON,
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
        f"A run goes on without the connection. {RUNS_ON}",
        "`orch status --live` asks the cloud for the machine; `orch logs -f` follows the run again.",
    ),
    Explanation(
        "login-refused",
        "The machine does not accept the lease's key",
        (8,),
        "It proved itself by its host key, but does not let the user in: during its first boot the account "
        "may not exist yet, or something removed it.",
        RUNS_ON,
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
        RUNS_ON,
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
        "Lock again (`orch lock`), then repeat the command.",
    ),
    Explanation(
        "stack-mismatch",
        "The packages are installed, and something that nobody declared differs",
        (7,),
        "A file of a package was changed, a package is there that the lock does not have, or a version "
        "differs.",
        RUNS_ON,
        "The message names it. Add it to the lock, or allow it by name with `stack.allow`.",
    ),
    Explanation(
        "sync",
        "What is here and what is there are not the same",
        (5,),
        "A file changed while it was sent, an object of a bucket is another than before, or a path must not "
        "be written here.",
        f"Files that were complete stay; nothing half came into their place. {RUNS_ON}",
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
        "interrupted",
        "The command was interrupted",
        (130,),
        "Ctrl-C, SIGTERM of a scheduler, or a closed terminal ended it.",
        "What the message names: a machine that was created stays unless the message says that it is gone, "
        "and a run that began goes on there.",
        "The command that the message names continues; `orch status` shows what there is.",
    ),
)
