"""The sections for what follows a run: retries, the gate of its model, notifications."""

from __future__ import annotations

from pydantic import Field

from orchestrator.profile import kinds
from orchestrator.profile.section import Section


class RetrySection(Section):
    """How often, or how long, an ended run and a refused machine are tried again."""

    interruption: kinds.Retries = Field(
        default=0,
        description="Retries of a run whose machine was preempted or lost: on the next offer, in another "
        "zone first, from its newest checkpoint. Default: 0.",
    )
    no_capacity: kinds.Duration | None = Field(
        default=None,
        alias="no-capacity",
        description="How long to wait if no offer has capacity: `2h`, for the first machine and later ones. "
        "Same as `wait`. Default: do not wait.",
    )
    error: kinds.Retries = Field(
        default=0,
        description="Retries of a run whose command failed, was killed or stalled: on the same machine, from "
        "its newest checkpoint. Default: 0.",
    )


class AcceptSection(Section):
    """The conditions under which a run's model replaces the current one."""

    name: kinds.ModelName = Field(
        default="current", description="Which model: the name of its link in `models/`. Default: current."
    )
    metrics: kinds.Limits = Field(
        default_factory=dict,
        description='Limits of the run\'s own metrics: `{accuracy: ">= 0.95", loss: {max: 0.3}}`.',
    )
    not_worse: kinds.Margins = Field(
        default_factory=dict,
        description="By how much a metric may be worse than that of the current model: `{accuracy: 0.01}`. "
        "Whether higher or lower is better follows from its limit in `metrics`, else from its name.",
    )
    parity: kinds.AcceptedParity | None = Field(
        default=None,
        description="The verdict of `--local-parity`: `identical`, or `equivalent`, which accepts both.",
    )
    model_check: kinds.Flag = Field(
        default=False,
        description="Every model file must have been checked to predict the same here. One that failed its "
        "check is refused in any case.",
    )
    resume_proof: kinds.Flag = Field(
        default=False, description="The run must have passed the resume proof (`--resume-proof`)."
    )


class MlflowSection(Section):
    """The MLflow server that gets a run's results at its end."""

    uri: kinds.Webhook | None = Field(
        default=None,
        description="The server: `https://mlflow.example.org`, or `{from_env: NAME}`. Default: "
        "`MLFLOW_TRACKING_URI`.",
    )
    experiment: kinds.Text | None = Field(default=None, description="Default: the profile's `name`.")
    model: kinds.Text | None = Field(
        default=None,
        description="The registered model that gets a version for each run that succeeded and, with "
        "`accept`, was accepted. Default: none is registered.",
    )
    artifacts: kinds.Flag = Field(
        default=True, description="`false`: the outputs and the log are not uploaded."
    )


class NotifySection(Section):
    """Who is notified when a run has ended."""

    on: tuple[kinds.NotifyEvent, ...] = Field(
        default=kinds.NOTIFY_EVENTS,
        description="`finished`: the run succeeded and was accepted; `failed`: anything else, also what "
        "stopped `orch run` before the run began, such as no capacity or the budget. Default: both.",
    )
    webhook: kinds.Webhook | None = Field(
        default=None,
        description="Where a JSON object is posted: `{from_env: SLACK_WEBHOOK}`, or `https://…`. Its `text` "
        "is one sentence, as Slack, Mattermost and Google Chat show it.",
    )
    command: kinds.Command | None = Field(
        default=None,
        description="A command that runs in the profile's folder on this computer, with the same object on "
        "standard input.",
    )
