"""Pages about errors of runs, and of the checks before and after them."""

from __future__ import annotations

from orchestrator.report.explained.page import AS_BEFORE, GONE, HOME, RUNS_ON, Explanation

PAGES = (
    Explanation(
        "run-failed",
        "The training failed",
        (6,),
        "The command ended with an error, or by a signal. Its last lines are shown.",
        f"The record, the output and the files that were written are in `runs/RUN/`. {RUNS_ON}",
        "Correct the script, then `orch train --run-id RUN --retry-failed`, or a new run.",
    ),
    Explanation(
        "out-of-memory",
        "The memory was used up",
        (10,),
        "The machine's memory, the limit of the run, or the GPU's memory was not enough.",
        f"The record, the output and the files that were written are in `runs/RUN/`. {RUNS_ON}",
        "`orch size PROFILE --write` measures what the training needs and writes it into the profile. For a "
        "GPU: a smaller batch, mixed precision, or a GPU with more memory.",
    ),
    Explanation(
        "preempted",
        "The cloud took its spot machine back",
        (11,),
        "Spot machines are cheaper and can be taken at any time.",
        f"{GONE} The output that came, and the last whole checkpoint, are here or in the store.",
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
        f"The record, the output and the files that were written are in `runs/RUN/`. {RUNS_ON}",
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
        f"The record, the output and the files that were written are in `runs/RUN/`. {RUNS_ON}",
        "Repeat the command. If it stalls again at the same place, see where it waits: `orch ssh` and "
        "py-spy.",
    ),
    Explanation(
        "loss-not-finite",
        "The loss is not a number, and the run was ended",
        (17,),
        "The loss became NaN or infinite, and the profile says `train.on_nan: stop`.",
        f"{HOME} Copies of checkpoints from before are kept.",
        "A smaller learning rate, clipped gradients or checked data; then train again.",
    ),
    Explanation(
        "disk-full",
        "The machine's disk was used up",
        (18,),
        "Data, checkpoints or outputs took all of `resources.disk`.",
        f"The record, the output and the files that were written are in `runs/RUN/`. {RUNS_ON}",
        "Ask for more `resources.disk`, keep fewer checkpoints, then `orch down` and `orch up`.",
    ),
    Explanation(
        "deadline-reached",
        "The time of the machine was up",
        (19,),
        "`max_duration` ended it, whatever ran on it.",
        f"{GONE} What was written near the end was saved as far as there was time.",
        "Raise `max_duration`, or let the run continue from its checkpoints.",
    ),
    Explanation(
        "parity-mismatch",
        "The first steps here and there are not the same",
        (7,),
        "`--local-parity` found a first tensor that differs, or could not compare. The report names it and, "
        "where that was confirmed by a trial, the cause.",
        f"The run was not started. {RUNS_ON}",
        "Follow the treatment in the report (docs/parity.md). `parity.on_mismatch: warn` reports and goes "
        "on.",
    ),
    Explanation(
        "resume-refused",
        "It is not proven that an interrupted run would be the same",
        (7,),
        "`--resume-proof` interrupted a short training: its checkpoint lacks something.",
        f"The run was not started. {RUNS_ON}",
        "Save what is named in the checkpoint as well (docs/resume.md).",
    ),
    Explanation(
        "data-not-sent",
        "The training reads files here that the machine was not sent",
        (7,),
        "They are ignored by git, outside of the project, or not declared as data.",
        f"The run was not started. {RUNS_ON}",
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
        AS_BEFORE,
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
