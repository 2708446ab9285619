"""Which counterfactuals to run: each difference, and what the stage suggests, as something to impose. Pure.

A candidate imposes one thing of the other side on the side that is run again. Instruction sets and cores can
be forced downwards only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.parity.changes import Change, Facts, intra_op, versions
from orchestrator.parity.ladder import Finding


@dataclass(frozen=True)
class Imposed:
    """What one run is given beyond what it had. Two can be joined by `|`; the right one wins.

    `env`: variables to set, None to unset. `plan`: see runtime.imposing. `files`: path in the working folder
    → the file whose bytes to put there, None to leave it out. `times`: path there → when it was last changed
    (Unix seconds). `arguments` and `python` replace the run's own; `folder`: run there, only reading.
    """

    env: Mapping[str, str | None] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Path | None] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    arguments: tuple[str, ...] | None = None
    python: str | None = None
    folder: Path | None = None

    def __or__(self, other: Imposed) -> Imposed:
        return Imposed(
            {**self.env, **other.env},
            {**self.plan, **other.plan},
            {**self.files, **other.files},
            {**self.times, **other.times},
            self.arguments if other.arguments is None else other.arguments,
            other.python or self.python,
            other.folder or self.folder,
        )


@dataclass(frozen=True)
class Candidate:
    """One thing that may be the cause. `imposed` None: it cannot be tried here, and `why` says the reason.

    `kind`: difference (the two sides' facts differ in it), probe (nothing recorded differs, but the stage
    suggests it) or replay (the other side's tensors instead of its circumstances: it locates, it explains
    nothing). `can_act`: whether it can act as early as the first difference.
    """

    topic: str
    words: str
    fix: str
    imposed: Imposed | None
    kind: str = "difference"
    why: str = ""
    can_act: bool = True


@dataclass(frozen=True)
class Other:
    """The side that is imitated: its facts, its observe folder, where its files and its interpreter are here,
    if they are. `cores`: how many this computer can give to a run."""

    facts: Facts
    observe: Path | None = None
    folder: Path | None = None
    python: str | None = None
    cores: int = 1


_INPUT = (
    "source", "arguments", "environment", "paths", "data", "order", "cores", "hashing", "timezone", "locale",
    "folder", "versions", "policy", "determinism", "threads", "isa", "onednn",
)  # fmt: skip
_ORDER = {
    "files": _INPUT,
    "batch": _INPUT,
    "initial": (
        "source", "arguments", "environment", "hashing", "data", "paths", "folder", "versions", "policy",
        "determinism", "locale", "timezone", "order", "cores", "threads", "isa", "onednn",
    ),
    "gradient": (
        "source", "arguments", "threads", "determinism", "cores", "compile", "isa", "onednn", "policy",
        "environment", "versions", "data", "paths",
    ),
}  # fmt: skip
_ORDER_OF_THE_REST = (
    "source", "arguments", "isa", "onednn", "compile", "threads", "determinism", "cores", "policy",
    "environment", "versions", "devices", "data", "paths",
)  # fmt: skip

_ARITHMETIC = frozenset(("threads", "isa", "onednn"))
"""How sums are computed: it can change no record and no initial weight that is only read or drawn."""


def candidates(
    finding: Finding, found: Sequence[Change], base: str, mine: Facts, other: Other
) -> tuple[Candidate, ...]:
    """What to try on side `base` ("A" or "B"), the most probable first.

    `mine` are that side's facts, `found` the differences between A and B.
    """
    explained = {change.topic for change in found if change.name.isupper()}
    differences = [
        _of(change, base, mine, other)
        for change in found
        if not (change.topic in explained and change.name in _BROUGHT_ABOUT)
    ]
    differences = [*_grouped(differences), *_versions(mine, other)]
    known = {candidate.topic for candidate in differences}
    probes = [probe for probe in _probes(finding, mine) if probe.topic not in known]
    order = _ORDER.get(finding.stage, _ORDER_OF_THE_REST)
    if finding.kind in ("dtype", "missing", "shape"):
        order = ("source", "arguments", "policy", "compile", *order)
    ranked = sorted(differences, key=lambda each: order.index(each.topic) if each.topic in order else 99)
    early = finding.stage in ("batch", "initial", "files")
    marked = [replace(each, can_act=not (early and each.topic in _ARITHMETIC)) for each in ranked]
    return (*marked, *probes, *_replays(finding, other))


_BROUGHT_ABOUT = frozenset(("intra_op", "onednn", "deterministic_ops", "utc_offsets", "categories", "tf32"))
"""Facts that a variable of the same topic brings about: the variable is tried instead."""


# ---------------------------------------------------------------- differences


MOST_FILES = 4
"""Files that are tried one by one; more are tried as one."""


def _grouped(listed: Sequence[Candidate]) -> Iterator[Candidate]:
    """Many files as one candidate: they differ together, and each run costs."""
    data = [each for each in listed if each.topic == "data"]
    yield from (each for each in listed if each.topic != "data" or len(data) <= MOST_FILES)
    if len(data) > MOST_FILES:
        together, missing = Imposed(), [each for each in data if each.imposed is None]
        for each in data:
            together |= each.imposed or Imposed()
        words = f"{len(data)} files differ: {'; '.join(each.words for each in data[:2])}; …"
        fix = "Sync the data: both sides must have the same bytes."
        yield Candidate(
            "data", words, fix, None if missing else together, why=missing[0].why if missing else ""
        )


def _versions(mine: Facts, other: Other) -> Iterator[Candidate]:
    """The other side's packages, where its interpreter is on this computer."""
    words = versions(mine, other.facts)
    if not words:
        return
    words = f"packages of other versions: {words}"
    fix = "Install the same versions on both sides, from one lock."
    if other.python:
        yield Candidate("versions", words, fix, Imposed(python=other.python))
    else:
        why = "the other side's packages are not on this computer"
        yield Candidate("versions", words, fix, None, why=why)


def _of(change: Change, base: str, mine: Facts, other: Other) -> Candidate:
    here, there = (change.a, change.b) if base == "A" else (change.b, change.a)
    make: Maker = _MAKERS.get(change.topic, _variable)
    imposed, why = make(change, here, there, other, mine)
    return Candidate(change.topic, change.words, change.fix, imposed, why=why)


Made = tuple[Imposed | None, str]
Maker = Callable[..., Made]


def _variable(change: Change, _here: Any, there: Any, *_rest: Any) -> Made:
    """A variable of that name; other facts of these topics cannot be imposed by themselves."""
    if change.name.isupper():
        return Imposed(env={change.name: None if there is None else str(there)}), ""
    return None, "it cannot be imposed by itself"


def _source(_change: Change, _here: Any, there: Any, other: Other, *_rest: Any) -> Made:
    if other.folder is None:
        return None, "the other side's code is not on this computer"
    files: dict[str, Path | None] = {}
    for name, digest in there.items():
        path = other.folder / name
        if digest is None:
            files[name] = None
        elif _same(path, digest):
            files[name] = path
        else:
            return None, f"{name} as the other side had it is not on this computer any more"
    return Imposed(files=files), ""


def _same(path: Path, digest: str) -> bool:
    import hashlib

    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == digest
    except OSError:
        return False


def _arguments(_change: Change, _here: Any, there: Any, *_rest: Any) -> Made:
    return Imposed(arguments=tuple(there)), ""


def _data(change: Change, here: Any, there: Any, other: Other, *_rest: Any) -> Made:
    if there is None:
        return Imposed(files={change.name: None}), ""
    path = Path(str(there.get("path", "")))
    places = [path, *([other.folder / change.name] if other.folder else [])]
    source = next((place for place in places if _is_file_of(place, there)), None)
    if source is None:
        return None, "the other side's file is not on this computer"
    if change.name.startswith(("/", "~", "--")):
        return None, f"{change.name} lies outside of the working folder"
    del here
    return Imposed(files={change.name: source}), ""


def _is_file_of(path: Path, entry: Mapping[str, Any]) -> bool:
    try:
        if path.stat().st_size != entry.get("bytes"):
            return False
    except OSError:
        return False
    return not entry.get("whole") or not entry.get("sha256") or _same(path, str(entry["sha256"]))


def _order(_change: Change, _here: Any, there: Any, other: Other, *_rest: Any) -> Made:
    """The order in which folders list them, and by which time they are sorted."""
    listed = (other.facts.get("files") or {}).get("list") or []
    times = {}
    for entry in listed:
        try:
            times[str(entry["name"])] = Path(str(entry["path"])).stat().st_mtime
        except OSError:
            continue
    return Imposed(plan={"listing": [Path(name).name for name in there]}, times=times), ""


def _threads(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name == "intra_op":
        return Imposed(plan={"intra_op": int(there)}), ""
    return _variable(change, here, there, *rest)


def _cores(_change: Change, _here: Any, there: Any, other: Other, *_rest: Any) -> Made:
    if 0 < int(there or 0) <= other.cores:
        return Imposed(plan={"cpus": int(there)}), ""
    return None, f"the other side has {there} cores, and this computer has {other.cores}"


def _folder(_change: Change, _here: Any, _there: Any, other: Other, *_rest: Any) -> Made:
    if other.folder is None:
        return None, "the other side's working folder is not on this computer"
    return Imposed(folder=other.folder), ""


def _isa(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name != "flags":
        return _variable(change, here, there, *rest)
    lacking = set(here) - set(there)
    if not lacking:
        return None, "the other processor can do more, and instruction sets can only be taken away"
    return capped(there), ""


def capped(flags: Sequence[str]) -> Imposed:
    """A processor that has only `flags`, for oneDNN, OpenBLAS and NumPy."""
    have = set(flags)
    if "avx512f" in have:
        level = "AVX512_CORE_VNNI" if "avx512_vnni" in have else "AVX512_CORE"
        return Imposed(env={"ONEDNN_MAX_CPU_ISA": level})
    level = "AVX2" if "avx2" in have else "AVX" if "avx" in have else "SSE41"
    core = {"AVX2": "Haswell", "AVX": "Sandybridge", "SSE41": "Nehalem"}[level]
    return Imposed(env={"ONEDNN_MAX_CPU_ISA": level, "OPENBLAS_CORETYPE": core})


def _onednn(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name != "onednn":
        return _variable(change, here, there, *rest)
    return Imposed(env={"TF_ENABLE_ONEDNN_OPTS": "1" if there else "0"}), ""


def _determinism(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name != "deterministic_ops":
        return _variable(change, here, there, *rest)
    return Imposed(plan={"deterministic": bool(there)}), ""


def _compile(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name in ("jit_compile", "run_eagerly", "steps_per_execution"):
        return Imposed(plan={"compile": {change.name: there}}), ""
    if change.name == "tf32":
        return Imposed(plan={"tf32": bool(there)}), ""
    return _variable(change, here, there, *rest)


def _policy(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name == "policy":
        return Imposed(plan={"policy": str(there)}), ""
    return _variable(change, here, there, *rest)


def _devices(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name != "devices":
        return _variable(change, here, there, *rest)
    if set(there or []) < set(here or []) and not any("GPU" in str(name) for name in there):
        return Imposed(env={"CUDA_VISIBLE_DEVICES": "-1"}), ""
    return None, "this computer does not have the other side's devices"


def _locale(change: Change, here: Any, there: Any, other: Other, *rest: Any) -> Made:
    if change.name.isupper():
        return _variable(change, here, there, other, *rest)
    theirs = {**other.facts.get("variables", {}), **other.facts.get("environment", {})}
    names = ("LC_ALL", "LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LANG", "PYTHONUTF8")
    return Imposed(env={name: theirs.get(name) for name in names}), ""


def _timezone(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name == "TZ":
        return _variable(change, here, there, *rest)
    january = int((there or [0])[0])
    sign = "-" if january >= 0 else "+"
    hours, minutes = divmod(abs(january) // 60, 60)
    return Imposed(env={"TZ": f"ORCH{sign}{hours}:{minutes:02d}"}), ""


_MAKERS: Mapping[str, Maker] = {
    "source": _source,
    "arguments": _arguments,
    "paths": _arguments,
    "data": _data,
    "order": _order,
    "threads": _threads,
    "cores": _cores,
    "isa": _isa,
    "onednn": _onednn,
    "determinism": _determinism,
    "compile": _compile,
    "policy": _policy,
    "devices": _devices,
    "folder": _folder,
    "locale": _locale,
    "timezone": _timezone,
}


# ---------------------------------------------------------------- probes and replays


def _probes(finding: Finding, mine: Facts) -> Iterator[Candidate]:
    """What the stage suggests although nothing that was recorded differs in it."""
    if finding.stage in ("batch", "files"):
        for words, imposed in (
            ("one core instead of several, on which interleave depends", Imposed(plan={"cpus": 1})),
            ("sorted folder listings", Imposed(plan={"listing": "sorted"})),
        ):
            topic = "cores" if "cpus" in imposed.plan else "order"
            yield Candidate(topic, words, "Make the order of records explicit.", imposed, "probe")
    elif finding.stage != "initial" and finding.rounding:
        yield from innocent_flips(mine)


def innocent_flips(mine: Facts) -> tuple[Candidate, ...]:
    """Changes that only round differently: probes for a cause, and the set that calibrates the band."""
    found = []
    if intra_op(mine) != 1:
        found.append(
            Candidate(
                "threads",
                "one thread within an operation",
                "Set TF_NUM_INTRAOP_THREADS=1 on both sides.",
                Imposed(plan={"intra_op": 1}),
                "probe",
            )
        )
    flags = mine.get("cpu", {}).get("flags", [])
    below = [flag for flag in flags if not flag.startswith(("avx512", "amx", "avx_vnni"))]
    if len(below) < len(flags) and "ONEDNN_MAX_CPU_ISA" not in mine.get("environment", {}):
        words, fix = "instructions up to AVX2", "Export ONEDNN_MAX_CPU_ISA=AVX2 on both sides."
        found.append(Candidate("isa", words, fix, Imposed(env={"ONEDNN_MAX_CPU_ISA": "AVX2"}), "probe"))
    if (mine.get("tensorflow") or {}).get("onednn"):
        words, fix = "oneDNN off", "Export TF_ENABLE_ONEDNN_OPTS=0 on both sides."
        found.append(Candidate("onednn", words, fix, Imposed(env={"TF_ENABLE_ONEDNN_OPTS": "0"}), "probe"))
    return tuple(found)


def _replays(finding: Finding, other: Other) -> Iterator[Candidate]:
    if other.observe is None:
        return
    if finding.stage in ("batch", "files"):
        words = "what enters the model (the other side's batches, replayed)"
        imposed = Imposed(env={"ORCH_IMPOSE_BATCH": str(other.observe)})
        yield Candidate("replay", words, "", imposed, "replay")
    if finding.stage == "initial":
        words = "where training begins (the other side's initial weights)"
        imposed = Imposed(env={"ORCH_IMPOSE_WEIGHTS": str(other.observe)})
        yield Candidate("replay", words, "", imposed, "replay")
    if finding.stage in ("batch", "initial", "files"):
        words = "batches and initial weights together (replayed)"
        both = {"ORCH_IMPOSE_BATCH": str(other.observe), "ORCH_IMPOSE_WEIGHTS": str(other.observe)}
        yield Candidate("replay", words, "", Imposed(env=both), "replay")
