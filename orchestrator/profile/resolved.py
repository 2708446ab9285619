"""The profile that other rooms use: every path absolute, every default filled in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import ProfileError
from orchestrator.model import AS_MADE, AcceleratorNeed, Bound, Need, Volume, is_allowed
from orchestrator.model.acceptance import Accept
from orchestrator.profile.mismatch import OnMismatch
from orchestrator.profile.values import Accelerator, FromEnv
from orchestrator.runtime.acting import inheritable

PARAMETER = "ORCH_PARAM_"
"""The prefix of the variables with a run's parameters."""


@dataclass(frozen=True)
class Resources:
    """What the machine must have; memory, disk and local SSD in bytes, network in Gbit/s.

    None: no requirement. Local SSD and network are minimums. `nodes`: how many such machines.
    """

    cpus: Bound | None
    memory: Bound | None
    accelerator: Accelerator | None
    disk: int
    spot: bool
    arch: str | None
    local_ssd: int | None = None
    network: float | None = None
    instance_type: str | None = None
    volume: Volume = AS_MADE
    nodes: int = 1


@dataclass(frozen=True)
class Stack:
    """`lock` is None if the project has none; `python` is None if an environment is created from the lock."""

    lock: Path | None
    python: Path | None
    delivery: str
    allow: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """The project's folder; `ignore` are the patterns that the profile adds, in the form of .gitignore."""

    path: Path
    ignore: tuple[str, ...]


@dataclass(frozen=True)
class DataTree:
    """One folder or file: `source` here, `target` where the script finds it, relative or absolute.

    With a `bucket`, its URL, the machine downloads the objects itself; `source` is then the folder on this
    computer for those that `sample` names (all if empty), when --local-parity or --resume-proof needs them.
    `stage`: upload it once to the profile's store, from which new machines download it. `stream`: a run
    starts while the objects of the bucket are still arriving. `requester_pays`: the user pays for reading the
    bucket.
    """

    source: Path
    target: str
    prepare: tuple[str, ...] | None
    bucket: str = ""
    sample: tuple[str, ...] = ()
    stage: bool = False
    stream: bool = False
    requester_pays: bool = False


@dataclass(frozen=True)
class Train:
    """The command and its inputs. `outputs` empty: everything that the run creates in its working folder.

    `check_imports`: modules that the check of the downloaded models may import. `allow`: differences that
    `stack.allow` accepts; such a variable is not inherited. `checkpoints`: where the run saves the state from
    which it can resume. `params`: the values that were put into `command`. `placeholders`: the names that
    stand in braces in the command as it is written.
    """

    command: tuple[str, ...]
    env: Mapping[str, str | FromEnv]
    outputs: tuple[str, ...]
    check_imports: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    on_nan: str = "warn"
    checkpoints: tuple[str, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    placeholders: tuple[str, ...] = ()

    def inherited(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of `environ` (this process's) that change results; the run gets them."""
        found = inheritable(os.environ if environ is None else environ)
        return {
            name: value
            for name, value in found.items()
            if name not in self.env and not is_allowed("environment", name, self.allow)
        }

    def environment(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of the run: inherited ones, its parameters, and those of `env`, filled in from
        `environ`.

        The result may contain secrets: pass it on, but never store or print it. Raises ProfileError if
        `environ` lacks a variable.
        """
        given = os.environ if environ is None else environ
        declared = {name: _value(f"train.env.{name}", value, given) for name, value in self.env.items()}
        params = {f"{PARAMETER}{name.upper()}": value for name, value in self.params.items()}
        return {**self.inherited(given), **params, **declared}


def _value(name: str, value: str | FromEnv, environ: Mapping[str, str]) -> str:
    if isinstance(value, str):
        return value
    if value.name in environ:
        return environ[value.name]
    raise ProfileError(
        f"{name}: the variable {value.name} is not set here",
        where=value.where,
        next_command=f"export {value.name}=VALUE    # VALUE: what {name} is to be",
    )


@dataclass(frozen=True)
class Notify:
    """Who is notified of a run's end, and of which ends: finished, failed."""

    on: tuple[str, ...]
    webhook: str | FromEnv | None
    command: tuple[str, ...] | None

    def url(self, environ: Mapping[str, str] | None = None) -> str | None:
        """Return the webhook, which may be a secret. Raises ProfileError if `environ` lacks its variable."""
        if self.webhook is None:
            return None
        return _value("notify.webhook", self.webhook, os.environ if environ is None else environ)


@dataclass(frozen=True)
class Mlflow:
    """The MLflow server of a run. None: `MLFLOW_TRACKING_URI`, the profile's name, no registered model."""

    uri: str | FromEnv | None = None
    experiment: str | None = None
    model: str | None = None
    artifacts: bool = True

    def server(self, environ: Mapping[str, str] | None = None) -> str | None:
        """Return the URL of the server. Raises ProfileError if `environ` lacks its variable."""
        given = os.environ if environ is None else environ
        if self.uri is None:
            return given.get("MLFLOW_TRACKING_URI", "").strip() or None
        return _value("mlflow.uri", self.uri, given)


@dataclass(frozen=True)
class Retry:
    """How often a run is retried by itself: after its machine was lost or preempted, and after it failed."""

    interruption: int = 0
    error: int = 0


@dataclass(frozen=True)
class Parity:
    """`budget` in seconds."""

    steps: int
    on_mismatch: OnMismatch
    confirm: bool
    budget: int
    light_steps: int = 0


@dataclass(frozen=True)
class Profile:
    """One training job, checked. Durations in seconds; `max_price` of all machines, in US dollars an hour.

    `digest` covers all fields, with defaults and overrides, but not the path of the folder or values from
    environment variables.
    """

    path: Path
    name: str
    cloud: str
    region: str | None
    zone: str | None
    image: str | None
    resources: Resources
    max_duration: int
    idle_duration: int | None
    max_price: float | None
    stack: Stack
    code: Code
    data: tuple[DataTree, ...]
    train: Train
    parity: Parity
    digest: str
    places: Mapping[str, str] = field(repr=False, compare=False)
    budget: float | None = None
    wait: int | None = None
    """Seconds to wait for capacity: `wait` or `retry.no-capacity`."""
    retry: Retry = Retry()
    stall: int | None = None
    store: str | None = None
    ledger: str = ""
    accept: Accept | None = None
    notify: Notify | None = None
    mlflow: Mlflow = Mlflow()
    reservation: str | None = None
    identity: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    regions: tuple[str, ...] = ()
    """If `region` is None: the allowed regions, in order of preference; () for any."""

    def need(self) -> Need:
        """Return what this profile asks of a cloud for each of its machines."""
        gpu, nodes = self.resources.accelerator, self.resources.nodes
        return Need(
            cloud=self.cloud,
            cpus=self.resources.cpus,
            memory=self.resources.memory,
            disk=self.resources.disk,
            accelerator=AcceleratorNeed(gpu.count, gpu.name, gpu.memory) if gpu else None,
            arch=self.resources.arch,
            spot=self.resources.spot,
            region=self.region,
            regions=self.regions,
            prefer=self.regions[0] if self.regions else None,
            zone=self.zone,
            max_price=self.max_price and round(self.max_price / nodes, 9),
            nodes=nodes,
            local_ssd=self.resources.local_ssd,
            network=self.resources.network,
            image=self.image,
            instance_type=self.resources.instance_type,
            volume=self.resources.volume,
            reservation=self.reservation,
            identity=self.identity.get(self.cloud),
        )

    def where(self, key: str) -> str:
        """Return file:line:column of `key` (`train.command`, `data[0].source`), or of the nearest key around
        it.
        """
        while key and key not in self.places:
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return self.places.get(key, f"{self.path}:1:1")
