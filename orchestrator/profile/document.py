"""The profile as it is written: the one model for reading, the JSON Schema and suggestions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from orchestrator.model import Bound
from orchestrator.profile import kinds
from orchestrator.profile.after import AcceptSection, MlflowSection, NotifySection, RetrySection
from orchestrator.profile.mismatch import OnMismatch
from orchestrator.profile.section import Section


class AcceleratorSection(Section):
    """GPUs by name, or by the memory of each."""

    name: kinds.GpuName | None = Field(
        default=None, description="The GPU's name, as `orch catalog show` lists it: T4, L4, A100-80GB."
    )
    count: kinds.GpuCount = Field(
        default=Bound(1), description="The number of GPUs: exactly `2`, or at least `1+`."
    )
    memory: kinds.Memory | None = Field(
        default=None, description="Memory of each GPU: exactly `24 GiB`, or at least `16 GiB+`."
    )


class DiskSection(Section):
    """The machine's disk, which ends with it."""

    size: kinds.Disk | None = Field(default=None, description="Default 20 GiB; 100 GiB on a cloud.")
    type: kinds.Text | None = Field(
        default=None,
        description="The cloud's disk type: gp3, io2; pd-ssd, hyperdisk-balanced. Default: gp3; pd-balanced "
        "or hyperdisk-balanced.",
    )
    throughput: kinds.Throughput | None = Field(
        default=None, description="Provisioned throughput, if the type allows it: `500 MiB/s`."
    )
    iops: kinds.Iops | None = Field(default=None, description="Provisioned IOPS, if the type allows it.")


class ResourcesSection(Section):
    """What the machine must have."""

    cpus: kinds.Cpus | None = Field(default=None, description="Virtual CPUs: exactly `4`, or at least `8+`.")
    memory: kinds.Memory | None = Field(
        default=None, description="Main memory: exactly `4 GiB`, or at least `16 GiB+`."
    )
    accelerator: (
        Annotated[AcceleratorSection, kinds.GPU_SHORTHAND, kinds.OrOneWord(kinds.GPU_WORD)] | None
    ) = Field(default=None, description="GPUs: `T4`, `L4:2`, or a mapping of name, count and memory.")
    instance_type: kinds.InstanceType | None = Field(
        default=None, description="Exactly this machine type: g5.xlarge, g2-standard-4."
    )
    disk: Annotated[DiskSection, kinds.DISK_SHORTHAND, kinds.OrOneWord(kinds.DISK_WORD)] | None = Field(
        default=None,
        description="The machine's disk, deleted with it: its size, or a mapping of size, type, throughput "
        "and iops. Default 20 GiB; 100 GiB on a cloud.",
    )
    local_ssd: kinds.LocalSsd | None = Field(
        default=None,
        description="Local SSD in addition to the disk: at least this size. It is formatted at the first "
        "connection, holds data, packages and runs, and is deleted with the machine.",
    )
    network: kinds.Network | None = Field(
        default=None,
        description="Minimum sustained network bandwidth: `10 Gbps`. Bursts do not count.",
    )
    spot: kinds.Flag = Field(
        default=False, description="Use spot capacity: cheaper, but it may be preempted at any time."
    )
    arch: kinds.Arch | None = Field(
        default=None, description="Processor architecture. Default on a cloud: x86_64."
    )
    nodes: kinds.Nodes = Field(
        default=1,
        description="Equal machines that train one model together, each with the resources above. The "
        "command runs on all of them, with TF_CONFIG.",
    )


class StackSection(Section):
    """The pinned packages, equal on both sides."""

    lock: kinds.LocalPath | None = Field(
        default=None,
        description="The lock file. Default: the first of uv.lock, pylock.toml, requirements.lock and "
        "requirements.txt in code.path.",
    )
    python: kinds.LocalPath | None = Field(
        default=None,
        description="The Python of your own environment, e.g. .venv/bin/python. Default: an environment is "
        "created from the lock.",
    )
    delivery: kinds.Delivery = Field(
        default="auto",
        description="How packages reach the machine: pushed from here, downloaded there, or automatic.",
    )
    allow: tuple[kinds.Text, ...] = Field(
        default=(),
        description="Names of accepted differences between the two sides. `lock-without-gpu` accepts a lock "
        "that cannot use the rented GPU.",
    )


class CodeSection(Section):
    """The project that is trained."""

    path: kinds.LocalPath = Field(
        default=".", description="The project's folder, relative to this file. Default: this file's."
    )
    ignore: tuple[kinds.Text, ...] = Field(
        default=(),
        description="Patterns of files that are not sent, in addition to .gitignore and .orchignore.",
    )


class DataSection(Section):
    """One folder or file of data."""

    source: kinds.DataSource = Field(
        description="A path on this computer: relative to this file, absolute, or under ~. Or an object or "
        "prefix in a bucket: s3://… or gs://…, which the machine downloads itself."
    )
    target: kinds.Target | None = Field(
        default=None,
        description="Where the script expects it on both sides: relative to the code, or absolute. Default: "
        "its place in code.path, otherwise its name.",
    )
    prepare: kinds.Command | None = Field(
        default=None,
        description="The command that creates a missing source on this computer, run in code.path.",
    )
    sample: tuple[kinds.Sample, ...] = Field(
        default=(),
        description="Objects of a bucket that the first steps read, as patterns relative to the source. Only "
        "these are downloaded to this computer, for the local side of --local-parity. Default: all.",
    )
    stream: bool = Field(
        default=False,
        description=(
            "Start the run while the objects of a bucket are still downloaded: the script sees all names "
            "and sizes at once, and opening a file waits until it is complete. Default: the run starts when "
            "all data are on the machine."
        ),
    )
    requester_pays: bool = Field(
        default=False,
        description="Accept the cost of reading a bucket with requester pays: S3 bills the account of the "
        "credentials here, Cloud Storage the project of GOOGLE_CLOUD_PROJECT. Default: its owner pays.",
    )
    stage: bool = Field(
        default=False,
        description="Upload local data to the profile's `store` once; new machines download it from there. "
        "Objects stay in the store, below `blobs/`, until you remove them.",
    )


class TrainSection(Section):
    """The command to run, and its outputs."""

    command: kinds.Command = Field(
        description="The command, as one line (split into words, but not run by a shell) or as a list."
    )
    params: dict[kinds.ParameterName, kinds.ParameterValue] = Field(
        default_factory=dict,
        description="Parameters: `{lr}` in the command stands for the value of `lr`. The run also has it in "
        "its environment, as ORCH_PARAM_LR. `orch sweep` trains with several values of each.",
    )
    env: dict[kinds.VariableName, kinds.VariableValue] = Field(
        default_factory=dict,
        description="Environment variables, equal on both sides. Secrets: `NAME: {from_env: NAME}`. "
        "Variables of your shell that can change results (OMP_, OPENBLAS_, TF_, XLA_, …) are passed to the "
        "run and reported; those with devices or paths stop it instead.",
    )
    outputs: tuple[kinds.Output, ...] = Field(
        default=(),
        description="Files to download: paths or globs in the working folder. Default: everything that the "
        "run creates there. An output that the run did not write is reported at its end; if it wrote none, "
        "everything is downloaded and `train` exits with code 14.",
    )
    on_nan: kinds.OnNan = Field(
        default="warn",
        description="What to do about a loss that is nan or infinite, in the output or as Keras reports it: "
        "`warn` reports it, `stop` also ends the run. Default: warn.",
    )
    checkpoints: tuple[kinds.Output, ...] = Field(
        default=(),
        description="Paths or globs in the working folder where the run saves checkpoints. Complete ones are "
        "copied, and downloaded while a command follows the run; the next attempt with the same inputs "
        "starts with the newest one. Default: none.",
    )
    check_imports: tuple[kinds.ModuleName, ...] = Field(
        default=(),
        description="Modules (`my_layers`) of the project, its `src` folder or installed packages that the "
        "model check may import and run. Default: none; models that need one are not checked.",
    )


class ParitySection(Section):
    """How the run on the machine is compared with the same run on this computer."""

    steps: kinds.Steps = Field(default=3, description="Training steps that are compared in full.")
    light_steps: kinds.FurtherSteps = Field(
        default=0, description="Steps after those that are compared by fingerprints."
    )
    on_mismatch: kinds.OnMismatch = Field(
        default=OnMismatch(),
        json_schema_extra={"default": asdict(OnMismatch())},
        description="What `train --local-parity` does on a verdict: `stop` or `warn` for all, or a mapping "
        "of equivalent, divergent, unstable and not_compared. Default: equivalent (rounding) is reported "
        "and the run continues; the others stop it.",
    )
    confirm: kinds.Flag = Field(
        default=True,
        description="Look for the cause of a difference by running the first steps again here, with one "
        "change at a time.",
    )
    budget: kinds.Duration = Field(
        default=120,
        json_schema_extra={"default": "120s"},
        description="Time limit of that search (default: 120s). Candidates that were not tried are listed.",
    )


class Document(Section):
    """One training job: where it runs, within which limits, on which stack, with which code and data."""

    version: kinds.Version = Field(description="The version of this format: 1.")
    name: kinds.Name = Field(
        description="A short name, part of the machine's name: lower-case letters, digits, hyphens."
    )
    cloud: kinds.Cloud = Field(
        description="Where to run: on this computer, on one cloud, or on the cheapest cloud."
    )
    region: kinds.Regions | None = Field(
        default=None,
        description="The cloud's region, e.g. us-east-1, or a list in order of preference. Default: your "
        "own, then the cheapest.",
    )
    zone: kinds.Location | None = Field(
        default=None, description="The zone within the region. Default: any that has capacity."
    )
    image: kinds.ImageName | None = Field(
        default=None,
        description="The boot image, by its name in the cloud. AWS: `ami-…`, `ssm:/parameter`, or a pattern "
        "of names. Google: `FAMILY`, `PROJECT/FAMILY`, or `projects/…`. Default: the newest image for the "
        "processor and GPU.",
    )
    resources: ResourcesSection = Field(
        default_factory=ResourcesSection,
        description="CPUs, memory, GPUs and disk that the machine must have.",
    )
    max_duration: kinds.Duration | None = Field(
        default=None,
        description="The machine powers itself off after this time, whatever happens; jobs are asked to save "
        "two minutes before. Default on local: 4h.",
    )
    idle_duration: kinds.Duration | None = Field(
        default=None,
        description="The machine powers itself off after this time without use, that is, without an active "
        "run or results that were not pulled. Default: never.",
    )
    max_price: kinds.Price | None = Field(
        default=None, description="Highest price of the machine, in US dollars per hour."
    )
    budget: kinds.Budget | None = Field(
        default=None,
        description="Limit for this project in a calendar month, in US dollars: `up` refuses a machine that "
        "could exceed it. `ORCH_BUDGET` limits all projects together.",
    )
    wait: kinds.Duration | None = Field(
        default=None,
        description="How long `up` waits if no offer has capacity: `2h`. Default: do not wait. Same as "
        "`retry.no-capacity`.",
    )
    ledger: kinds.StoreUrl | None = Field(
        default=None,
        description="The store in which a team's computers share their leases, so that all see them and no "
        "two create a machine for one profile: `s3://bucket/prefix`, `gs://bucket/prefix`, or "
        "`file:///folder` of a shared disk. One prefix per project. `ORCH_LEDGER` takes precedence. "
        "Default: files on this computer, in `.orch`.",
    )
    retry: RetrySection = Field(
        default_factory=RetrySection,
        description="What `train` and `run` retry by themselves. All attempts are one run; `budget` and "
        "`max_price` apply. Default: nothing, because each attempt costs money.",
    )
    store: kinds.StoreUrl | None = Field(
        default=None,
        description="Where checkpoints and the log are uploaded during a run, and its outputs and record at "
        "its end: `s3://bucket/prefix`, `gs://bucket/prefix`, or `file:///folder`. The machine uploads them "
        "with a form signed here; if none can be signed, the command that follows the run does. Default: "
        "everything is kept on this computer only.",
    )
    stall: kinds.Duration | None = Field(
        default=None,
        description="End a run without progress for this time: no output and no training step; before the "
        "first step, also no use of a core or disk. `retry.error` retries it. Default: never.",
    )
    accept: AcceptSection | None = Field(
        default=None,
        description=(
            "The gate of a run that succeeded: one that passes becomes `models/current`; the results of one "
            "that does not are downloaded too, and the exit code is 20. Default: no gate."
        ),
    )
    notify: NotifySection | None = Field(
        default=None,
        description=(
            "Who is notified when a run has ended. The first command that sees the end sends it: `run`, "
            "`train`, `watch` or `pull`. A failed notification is reported, and changes nothing else. "
            "Default: nobody."
        ),
    )
    mlflow: MlflowSection | None = Field(
        default=None,
        description="The MLflow server that gets parameters, metrics, outputs and verdicts of each run that "
        "ends. Default: the server that `MLFLOW_TRACKING_URI` names; without it, none.",
    )
    reservation: kinds.Text | None = Field(
        default=None,
        description="Reserved capacity of the account: a capacity reservation or capacity block (`cr-…`), or "
        "a reservation by name. It is in one zone, so `zone` is required.",
    )
    identity: dict[kinds.IdentityCloud, kinds.Text] = Field(
        default_factory=dict,
        description="The machine's own identity on its cloud: `{aws: instance-profile, gcp: "
        "service-account}`. Every job on the machine has its permissions. Default: none.",
    )
    labels: dict[kinds.LabelKey, kinds.Text] = Field(
        default_factory=dict,
        description="Your own labels on the machine and its disk, for the cloud's bill: `{team: vision}`.",
    )
    stack: StackSection = Field(
        default_factory=StackSection, description="The lock file, and how its packages reach the machine."
    )
    code: CodeSection = Field(
        default_factory=CodeSection, description="The project's folder, and which files are not sent."
    )
    data: tuple[DataSection, ...] = Field(default=(), description="Folders and files of data.")
    train: TrainSection = Field(description="The command, its environment, and its outputs.")
    parity: ParitySection = Field(
        default_factory=ParitySection,
        description="How much is compared with a run on this computer, and the effect of a difference.",
    )


SECTIONS: dict[tuple[str, ...], type[Section]] = {
    (): Document,
    ("resources",): ResourcesSection,
    ("resources", "accelerator"): AcceleratorSection,
    ("resources", "disk"): DiskSection,
    ("retry",): RetrySection,
    ("accept",): AcceptSection,
    ("notify",): NotifySection,
    ("mlflow",): MlflowSection,
    ("stack",): StackSection,
    ("code",): CodeSection,
    ("data", "*"): DataSection,
    ("train",): TrainSection,
    ("parity",): ParitySection,
}
"""Every mapping of known keys, by the keys that lead to it; `*` is a list's index."""
