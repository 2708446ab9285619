"""The content of environment.json as typed values, with every value checked. See runtime/observe/facts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

from orchestrator.model.answers import Between, Count, Malformed, Most, Settings, parsed, value
from orchestrator.model.files import regular_bytes

ENVIRONMENT = "environment.json"

MOST_BYTES = 1 << 26
"""Maximum bytes of environment.json, enough for the names and hashes of a hundred thousand files."""

Word = Annotated[str, Most(4096)]
Value = Annotated[str, Most(1 << 17)]
"""The value of a variable, or an argument, as the kernel passes it to a program."""

Number = Annotated[int, Between(-(1 << 63), 1 << 64)]
Listed = Annotated[list[Word], Most(100_000)]


class Platform(TypedDict, total=False):
    system: Word | None
    machine: Word | None
    libc: Word | None


class Program(TypedDict, total=False):
    name: Word | None
    sha256: Word | None


class HostName(TypedDict, total=False):
    name: Word | None
    asked: bool | None


class Hashing(TypedDict, total=False):
    randomized: bool | None
    seed: Word | None
    sample: Number | None


class FolderFacts(TypedDict, total=False):
    case_sensitive: bool | None


class Threads(TypedDict, total=False):
    intra: Count | None
    inter: Count | None


Strategy = TypedDict("Strategy", {"class": Word | None, "replicas": Count | None}, total=False)


class Worker(TypedDict, total=False):
    rank: Count | None
    world: Count | None


Described = TypedDict("Described", {"class": Word | None, "config": dict[Word, Settings] | None}, total=False)


class Cpu(TypedDict, total=False):
    """The processor."""

    count: Count | None
    installed: Count | None
    affinity: list[Count] | None
    flags: list[Word] | None
    model: Word | None


class Locale(TypedDict, total=False):
    """The locale of the process."""

    categories: dict[Word, Word | None] | None
    decimal_point: Word | None
    preferred_encoding: Word | None
    filesystem_encoding: Word | None
    utf8_mode: bool | None


class Timezone(TypedDict, total=False):
    """The time zone; offsets in seconds."""

    TZ: Word | None
    names: list[Word] | None
    utc_offsets: list[Annotated[int, Between(-200_000, 200_000)]] | None


class Keras(TypedDict, total=False):
    """Which Keras, and how it computes."""

    module: Word | None
    backend: Word | None
    policy: Word | None
    floatx: Word | None
    image_data_format: Word | None


class TensorFlow(TypedDict, total=False):
    """How TensorFlow was configured."""

    intra_op_threads: Count | None
    inter_op_threads: Count | None
    deterministic_ops: bool | None
    onednn: bool | None
    tf32: bool | None
    devices: list[Word] | None
    jit: Settings
    soft_placement: bool | None
    functions_eager: bool | None
    build: Settings


class Model(TypedDict, total=False):
    """How a compiled model runs its steps."""

    name: Word | None
    jit_compile: bool | None
    run_eagerly: bool | None
    steps_per_execution: Count | None


class Compiled(TypedDict, total=False):
    """The arguments of compile()."""

    name: Word | None
    loss: Settings
    loss_weights: Settings
    metrics: Settings
    weighted_metrics: Settings


class _Named(TypedDict):
    name: Word


class FileFacts(_Named, total=False):
    """One file that was opened."""

    path: Word | None
    bytes: Count | None
    changed: float | None
    sha256: Annotated[str, Most(64)] | None
    whole: bool | None
    way: Annotated[str, Most(32)] | None
    made: bool | None
    cache: bool | None
    fetched: Word | None


class Files(TypedDict, total=False):
    """The files in the order of first opening."""

    list: Annotated[list[FileFacts], Most(100_000)] | None
    left_out: Count | None
    folders: Listed | None
    written: Listed | None


class Environment(TypedDict, total=False):
    """The complete content of environment.json."""

    python: Word | None
    platform: Platform | None
    versions: dict[Word, Word | None] | None
    cpu: Cpu | None
    argv: Annotated[list[Value], Most(100_000)] | None
    script: Word | None
    program: Program | None
    environment: dict[Word, Value] | None
    set_late: list[Word] | None
    modules: Annotated[dict[Word, Word | None], Most(100_000)] | None
    host: HostName | None
    files: Files | None
    rng: dict[Word, Settings] | None
    locale: Locale | None
    timezone: Timezone | None
    hashing: Hashing | None
    folder: FolderFacts | None
    tensorflow: TensorFlow | None
    threads: Threads | None
    strategy: Strategy | None
    worker: Worker | None
    datasets: list[dict[Word, Settings]] | None
    keras: Keras | None
    models: list[Model] | None
    compiled: list[Compiled] | None
    losses: list[Settings] | None
    optimizers: list[Described] | None


class _Located(TypedDict):
    path: Word


class OpenedFile(_Located, total=False):
    """One file that a process opened; its hash is in environment.json."""

    way: Annotated[str, Most(32)] | None
    made: bool | None
    cache: bool | None
    fetched: Word | None
    sha256: Annotated[str, Most(64)] | None


class OpenedFiles(TypedDict, total=False):
    """The files of one process without hashes; `written`: those opened for writing."""

    list: Annotated[list[OpenedFile], Most(100_000)] | None
    left_out: Count | None
    folders: Listed | None
    written: Listed | None


class Opened(TypedDict, total=False):
    """The part of environment.json about files that the first process opened."""

    files: OpenedFiles | None


class OpenedByProcess(Opened, total=False):
    """The complete content of opened-PID.json; `modules`: paths of the project's modules."""

    modules: Listed | None


def read_facts(path: Path) -> dict[str, Any]:
    """Return the facts in environment.json without null values; {} if there is no file. Raises Malformed."""
    return _read(path, Environment)


def read_opened_files(path: Path) -> dict[str, Any]:
    """Return what one process opened, from an opened-*.json or environment.json; {} if there is no file.
    Raises Malformed.
    """
    return _read(path, Opened if path.name == ENVIRONMENT else OpenedByProcess)


def _read(path: Path, shape: Any) -> dict[str, Any]:
    try:
        raw = parsed(regular_bytes(path, MOST_BYTES), most=MOST_BYTES, constants=True)
        return _without_nulls(value(shape, raw))
    except FileNotFoundError:
        return {}
    except Malformed as error:
        raise Malformed(f"{path.name} is not what the recorder writes: {error}") from None


def _without_nulls(found: dict[str, Any]) -> dict[str, Any]:
    """Remove facts that could not be read, as if they were not recorded."""
    kept = {name: each for name, each in found.items() if each is not None}
    for name, each in kept.items():
        if name in ("files", "cpu", "tensorflow"):
            kept[name] = {key: inner for key, inner in each.items() if inner is not None}
    return kept
