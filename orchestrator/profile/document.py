"""The profile as it is written: the one model behind reading, the JSON Schema and the hints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.model import Bound
from orchestrator.profile import kinds
from orchestrator.profile.mismatch import OnMismatch


class Section(BaseModel):
    """A mapping of known keys. A key without a value counts as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = cls.written_keys()
        return {key: found for key, found in value.items() if found is not None or key not in known}

    @classmethod
    def written_keys(cls) -> tuple[str, ...]:
        """The keys as they are written."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())


class AcceleratorSection(Section):
    """GPUs by name, or by the memory of each."""

    name: kinds.GpuName | None = Field(
        default=None, description="The GPU's name in the catalogs: T4, L4, A100-80GB."
    )
    count: kinds.GpuCount = Field(
        default=Bound(1), description="How many of them: exactly `2`, or at least: `1+`."
    )
    memory: kinds.Memory | None = Field(
        default=None, description="Memory of each: exactly `24 GiB`, or at least: `16 GiB+`."
    )


class DiskSection(Section):
    """The machine's disk, which ends with it."""

    size: kinds.Disk | None = Field(default=None, description="Default 20 GiB; 100 GiB on a cloud.")
    type: kinds.Text | None = Field(
        default=None,
        description="As the cloud calls it: gp3, io2; pd-ssd, hyperdisk-balanced. "
        "Default: gp3; pd-balanced or hyperdisk-balanced.",
    )
    throughput: kinds.Throughput | None = Field(
        default=None, description="To order, where the type allows it: `500 MiB/s`."
    )
    iops: kinds.Iops | None = Field(default=None, description="To order, where the type allows it.")


class ResourcesSection(Section):
    """What the machine must have."""

    cpus: kinds.Cpus | None = Field(default=None, description="Virtual CPUs: exactly `4`, or at least: `8+`.")
    memory: kinds.Memory | None = Field(
        default=None, description="Main memory: exactly `4 GiB`, or at least: `16 GiB+`."
    )
    accelerator: (
        Annotated[AcceleratorSection, kinds.GPU_SHORTHAND, kinds.OrOneWord(kinds.GPU_WORD)] | None
    ) = Field(default=None, description="GPUs: `T4`, `L4:2`, or a mapping of name, count and memory.")
    instance_type: kinds.InstanceType | None = Field(
        default=None, description="Exactly this type, as the cloud calls it: g5.xlarge, g2-standard-4."
    )
    disk: Annotated[DiskSection, kinds.DISK_SHORTHAND, kinds.OrOneWord(kinds.DISK_WORD)] | None = Field(
        default=None,
        description="The machine's disk, which ends with it: its size, or a mapping of size, type, "
        "throughput and iops. Default 20 GiB; 100 GiB on a cloud.",
    )
    local_ssd: kinds.LocalSsd | None = Field(
        default=None,
        description="SSD inside the machine, in addition to its disk: at least this much. It is formatted at "
        "first contact, holds data, packages and runs, and ends with the machine.",
    )
    network: kinds.Network | None = Field(
        default=None,
        description="What the network must sustain, at least: `10 Gbps`. Bursts do not count.",
    )
    spot: kinds.Flag = Field(
        default=False, description="Rent spare capacity: cheaper, and it may be taken away at any time."
    )
    arch: kinds.Arch | None = Field(default=None, description="Processor family. Default on a cloud: x86_64.")


class StackSection(Section):
    """The pinned packages, equal on both sides."""

    lock: kinds.LocalPath | None = Field(
        default=None,
        description="The lock file. Default: the first of uv.lock, pylock.toml, requirements.lock and "
        "requirements.txt in code.path.",
    )
    python: kinds.LocalPath | None = Field(
        default=None,
        description="The interpreter of the environment in which you work, e.g. .venv/bin/python. "
        "Default: an environment is made from the lock.",
    )
    delivery: kinds.Delivery = Field(
        default="auto",
        description="How packages reach the machine: pushed from here, downloaded there, or whichever works.",
    )
    allow: tuple[kinds.Text, ...] = Field(
        default=(),
        description="Differences between the two sides to accept, by name; `lock-without-gpu` rents a GPU "
        "that the lock cannot use.",
    )


class CodeSection(Section):
    """The project that is trained."""

    path: kinds.LocalPath = Field(
        default=".", description="The project's folder, relative to this file. Default: this file's."
    )
    ignore: tuple[kinds.Text, ...] = Field(
        default=(),
        description="Patterns not to send, as in .gitignore, in addition to .gitignore and .orchignore.",
    )


class DataSection(Section):
    """One folder or file of data."""

    source: kinds.DataSource = Field(
        description="Where it lies here: relative to this file, absolute, or under ~. Or in a bucket: "
        "s3://… or gs://…, an object or all objects below a prefix; the machine fetches them itself."
    )
    target: kinds.Target | None = Field(
        default=None,
        description="Where the script finds it, on both sides: relative to the code, or absolute. "
        "Default: as it lies in code.path, else its own name.",
    )
    prepare: kinds.Command | None = Field(
        default=None,
        description="The command that makes the source here, run in code.path when it is absent.",
    )
    sample: tuple[kinds.Sample, ...] = Field(
        default=(),
        description="The objects of a bucket that the first steps read, as patterns relative to the source: "
        "only these are fetched to this computer, for the local side of a proof. Default: all.",
    )
    stream: bool = Field(
        default=False,
        description="Begin the run while the objects of a bucket still come: the script sees all names and "
        "sizes at once, and opening a file waits for it. Default: the run begins when all data are there.",
    )
    stage: bool = Field(
        default=False,
        description="Put what lies here into the profile's `store` once, by its content: a new machine then "
        "fetches it from there. Objects stay in the store, below `blobs/`, until you remove them.",
    )


class TrainSection(Section):
    """What to run, and what it leaves."""

    command: kinds.Command = Field(
        description="The command, as one line (split as a shell would, but no shell runs it) or as a list."
    )
    env: dict[kinds.VariableName, kinds.VariableValue] = Field(
        default_factory=dict,
        description="Environment variables, equal on both sides. Secrets: `NAME: {from_env: NAME}`. "
        "Variables of your shell that can change numbers (OMP_, OPENBLAS_, TF_, XLA_, …) are given to the "
        "run as they are, and named; those with devices or paths are not, and stop it.",
    )
    outputs: tuple[kinds.Output, ...] = Field(
        default=(),
        description="What to bring back: paths or globs in the working folder. "
        "Default: all that the run makes there. "
        "One that the run did not write is named at its end; if it wrote none of them, all that it made "
        "comes back, and `train` ends with exit code 14.",
    )
    on_nan: kinds.OnNan = Field(
        default="warn",
        description="What a loss that is nan or infinite does, in what is printed or as Keras returns it: "
        "`warn` names it in the output and the record, `stop` ends the run, too. Default: warn.",
    )
    checkpoints: tuple[kinds.Output, ...] = Field(
        default=(),
        description="Paths or globs in the working folder where the run saves what it can go on from. Each "
        "time that they are whole they are copied, and brought here while a command follows the run; the "
        "next attempt at the same inputs finds the newest where it was. Default: none.",
    )
    check_imports: tuple[kinds.ModuleName, ...] = Field(
        default=(),
        description="Modules (`my_layers`) that the check of the fetched models may import, with the code in "
        "them: of the project's folder, its `src`, or installed. Default: none; a model that needs one is "
        "not checked.",
    )


class ParitySection(Section):
    """How the run there is compared with the same run here."""

    steps: kinds.Steps = Field(default=3, description="How many training steps are compared in full.")
    light_steps: kinds.FurtherSteps = Field(
        default=0, description="How many steps after those are compared by fingerprints of their bits."
    )
    on_mismatch: kinds.OnMismatch = Field(
        default=OnMismatch(),
        json_schema_extra={"default": asdict(OnMismatch())},
        description="What a verdict does to `train --local-parity`: `stop` or `warn` for all of them, or a "
        "mapping of equivalent, divergent, unstable and not_compared. "
        "Default: equivalent (rounding) is reported and the run goes on; the others stop it.",
    )
    confirm: kinds.Flag = Field(
        default=True,
        description="Look for the cause of a difference by running the first steps again here, "
        "with one thing imposed at a time.",
    )
    budget: kinds.Duration = Field(
        default=120,
        json_schema_extra={"default": "120s"},
        description="How long that may take (default: 120s); what was not tried is said.",
    )


class RetrySection(Section):
    """How often, or how long, an ended run and a refused machine are tried again."""

    interruption: kinds.Retries = Field(
        default=0,
        description="How often a run is begun again whose machine was taken back or lost: on the next offer, "
        "another place first, from its newest checkpoint. Default: 0.",
    )
    no_capacity: kinds.Duration | None = Field(
        default=None,
        alias="no-capacity",
        description="How long to go on asking where no offer has capacity: `2h`, for the first machine as "
        "for later ones. The same as `wait`. Default: not at all.",
    )
    error: kinds.Retries = Field(
        default=0,
        description="How often a run is begun again whose command failed, was killed or stalled: on the same "
        "machine, from its newest checkpoint. Default: 0.",
    )


class AcceptSection(Section):
    """What a run must show before its model takes the place of the last one."""

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
        "Which way is better is told by its limit in `metrics`, else by its name.",
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
        default=False, description="The run must have been proven to resume exactly (`--resume-proof`)."
    )


class Document(Section):
    """One training job: where it runs, within which limits, on which stack, with which code and data."""

    version: kinds.Version = Field(description="The version of this format: 1.")
    name: kinds.Name = Field(
        description="A short name, part of the machine's: lower-case letters, digits, hyphens."
    )
    cloud: kinds.Cloud = Field(
        description="Where: on this computer, on one cloud, or on whichever cloud is cheaper."
    )
    region: kinds.Regions | None = Field(
        default=None,
        description="The cloud's region, e.g. us-east-1, or a list: only these, the first before the others. "
        "Default: your own, then the cheapest.",
    )
    zone: kinds.Location | None = Field(
        default=None, description="The zone within the region. Default: any that has capacity."
    )
    image: kinds.ImageName | None = Field(
        default=None,
        description="What the machine boots, by its name at the cloud. AWS: `ami-…`, `ssm:/parameter`, or a "
        "pattern of names. Google: `FAMILY`, `PROJECT/FAMILY`, or `projects/…`. Default: the newest that "
        "fits processor and GPU.",
    )
    resources: ResourcesSection = Field(
        default_factory=ResourcesSection,
        description="CPUs, memory, GPUs and disk that the machine must have.",
    )
    max_duration: kinds.Duration | None = Field(
        default=None,
        description="The machine powers itself off after this long, whatever happens; jobs are asked to save "
        "two minutes before. Default on local: 4h.",
    )
    idle_duration: kinds.Duration | None = Field(
        default=None,
        description="The machine powers itself off after this long without use: no run goes on, and the "
        "results of all runs were fetched. Default: it does not.",
    )
    max_price: kinds.Price | None = Field(
        default=None, description="Most to pay for the machine, in US dollars an hour."
    )
    budget: kinds.Budget | None = Field(
        default=None,
        description="Most that this project may cost in a calendar month, in US dollars: `up` refuses a "
        "machine that could exceed it. `ORCH_BUDGET` is the same for all projects together.",
    )
    wait: kinds.Duration | None = Field(
        default=None,
        description="How long `up` goes on to ask where no offer has capacity: `2h`. Default: not at all. "
        "The same as `retry.no-capacity`.",
    )
    ledger: kinds.StoreUrl | None = Field(
        default=None,
        description="The store in which a team's computers keep what is leased, so that all of them see it "
        "and no two make a machine for one profile: `s3://bucket/prefix`, `gs://bucket/prefix`, or "
        "`file:///folder` of a disk that they share. One prefix for each project. `ORCH_LEDGER` is stronger. "
        "Default: files of this computer, in `.orch`.",
    )
    retry: RetrySection = Field(
        default_factory=RetrySection,
        description="What `train` and `run` try again by themselves. All attempts are one run; `budget` and "
        "`max_price` hold for each and all. Default: nothing, as each costs.",
    )
    store: kinds.StoreUrl | None = Field(
        default=None,
        description="Where checkpoints and the log go while a run goes on, and its outputs and record at its "
        "end: `s3://bucket/prefix`, `gs://bucket/prefix`, or `file:///folder`. The machine puts them there "
        "by a form that is signed here; where none can be, whoever follows the run does. Default: all is "
        "kept here alone.",
    )
    stall: kinds.Duration | None = Field(
        default=None,
        description="End a run that makes no progress for so long: no output and no training step; of one "
        "that has shown no step, nothing that uses a core or a disk either. `retry.error` begins it again. "
        "Default: never.",
    )
    accept: AcceptSection | None = Field(
        default=None,
        description="The gate of a run that succeeded: one that passes becomes `models/current`; one that "
        "does not is brought home all the same, and ends with exit code 20. Default: no gate.",
    )
    reservation: kinds.Text | None = Field(
        default=None,
        description="Capacity that the account holds already: a capacity reservation or capacity block "
        "(`cr-…`), or a reservation by name. It lies in one zone, so `zone` is required.",
    )
    identity: dict[kinds.IdentityCloud, kinds.Text] = Field(
        default_factory=dict,
        description="What the machine itself may do on its cloud: `{aws: instance-profile, gcp: "
        "service-account}`. Every job there has it. Default: nothing.",
    )
    labels: dict[kinds.LabelKey, kinds.Text] = Field(
        default_factory=dict,
        description="Labels of your own on the machine and its disk, for the cloud's bill: `{team: vision}`.",
    )
    stack: StackSection = Field(
        default_factory=StackSection, description="The lock and how its packages reach the machine."
    )
    code: CodeSection = Field(
        default_factory=CodeSection, description="The project's folder, and what of it stays here."
    )
    data: tuple[DataSection, ...] = Field(default=(), description="Folders and files of data.")
    train: TrainSection = Field(description="The command, its environment, and what to bring back.")
    parity: ParitySection = Field(
        default_factory=ParitySection, description="How much is compared with a run here, and what follows."
    )


SECTIONS: dict[tuple[str, ...], type[Section]] = {
    (): Document,
    ("resources",): ResourcesSection,
    ("resources", "accelerator"): AcceleratorSection,
    ("resources", "disk"): DiskSection,
    ("retry",): RetrySection,
    ("accept",): AcceptSection,
    ("stack",): StackSection,
    ("code",): CodeSection,
    ("data", "*"): DataSection,
    ("train",): TrainSection,
    ("parity",): ParitySection,
}
"""Every mapping of known keys, by the keys that lead to it; `*` is a list's index."""
