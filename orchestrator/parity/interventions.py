"""Convert a difference of facts to an intervention on a repeated run, or say why that is not possible.
Pure.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.model.answers import SHORT
from orchestrator.model.files import regular_bytes, sha256_of
from orchestrator.model.outcomes import Kind
from orchestrator.model.paths import is_folder, with_home
from orchestrator.parity.changes import Change, Facts, another_program, versions
from orchestrator.parity.intervention import SHARED, Candidate, Intervention, Other
from orchestrator.parity.naming import SideNames
from orchestrator.parity.opened import is_cache
from orchestrator.parity.places import ELSEWHERE


def to_intervention(change: Change, base: str, mine: Facts, other: Other) -> Candidate:
    """Return the difference as a candidate, to be imposed on side `base`, whose facts are `mine`."""
    here, there = (change.a, change.b) if base == "A" else (change.b, change.a)
    make: Maker = _MAKERS.get(change.topic, _variable)
    imposed, why = make(change, here, there, other, mine)
    return Candidate(
        change.topic, change.words, change.fix, imposed, why=why, variable=change.variable, name=change.name
    )


Made = tuple[Intervention | None, str]
Maker = Callable[..., Made]


def _variable(change: Change, _here: Any, there: Any, *_rest: Any) -> Made:
    """Return the intervention that sets this variable; other facts of these topics cannot be imposed
    alone.
    """
    if change.variable:
        return Intervention(env={change.name: None if there is None else str(there)}), ""
    return None, "it cannot be imposed by itself"


def _source(_change: Change, _here: Any, there: Any, other: Other, mine: Facts) -> Made:
    """Return the intervention that uses the other side's modules; if its program has another name, that
    program is run.
    """
    if other.folder is None and other.kept is None:
        return None, "the other side's code is not on this computer"
    files: dict[str, Path | None] = {}
    theirs = another_program(mine, other.facts)
    for name, digest in there.items():
        if digest is None and theirs:
            continue  # this side's program may stay, because the other one is run
        places = [place / name for place in (other.folder, other.beside) if place] + _kept(other, digest)
        path = next((place for place in places if digest and _same(place, digest)), None)
        if digest and path is None:
            return None, f"{name} as the other side had it is not on this computer any more"
        files[name] = path
    return Intervention(files=files, program=theirs), ""


def _kept(other: Other, digest: Any) -> list[Path]:
    return [other.kept / str(digest)] if other.kept and digest else []


def _same(path: Path, digest: str) -> bool:
    return sha256_of(path) == digest


def _arguments(_change: Change, _here: Any, there: Any, *_rest: Any) -> Made:
    return Intervention(arguments=tuple(there)), ""


def _data(change: Change, here: Any, there: Any, other: Other, mine: Facts) -> Made:
    place = _place(change.name, here, mine)
    if place is None:
        return None, "this side reads nothing at the file's place"
    if there is None:
        return Intervention(files={place: None}), ""
    path = Path(str(there.get("path", "")))
    if here is None and other.folder and path == other.folder / change.name and mine.get("cwd"):
        place = str(Path(mine["cwd"]) / change.name)  # in the working folder there, so here too
    places = [path, *([other.folder / change.name] if other.folder else [])]
    places += _kept(other, there.get("sha256") if there.get("whole") else None)
    source = next((place for place in places if _is_file_of(place, there)), None)
    if source is None:
        return None, "the file as the other side had it is not on this computer any more"
    return Intervention(files={place: source}), ""


def _paths(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    """Return the intervention for arguments or a variable with different paths."""
    return (_variable if change.variable else _arguments)(change, here, there, *rest)


def _keras_json(_change: Change, here: Any, there: Any, other: Other, mine: Facts) -> Made:
    """Return the intervention with the settings of the other side's keras.json, which Keras reads during
    import, if the settings of each side are those of its file.
    """
    own, wanted = _keras_settings(here), _keras_settings(there)
    if not own or not wanted:
        return None, "the file as both sides had it is not on this computer any more"
    for settings, facts in ((own, mine), (wanted, other.facts)):
        had = facts.get("keras") or {}
        if any(had.get(name) != value for name, value in settings.items()):
            return None, "the program sets what the file sets, in another way"
    return Intervention(plan=wanted), ""


def _keras_settings(entry: Any) -> dict[str, str]:
    """Return the settings of a keras.json that can be imposed, or the defaults of Keras without a file;
    nothing if the file is not as it was in the run.
    """
    if not entry:
        return {"floatx": "float32", "image_data_format": "channels_last"}
    if not _is_file_of(Path(str(entry.get("path", ""))), entry):
        return {}
    try:
        found = json.loads(regular_bytes(Path(str(entry["path"])).resolve(), SHORT))
    except (OSError, ValueError, RecursionError, RuntimeError):
        return {}
    names = ("floatx", "image_data_format")
    return {name: str(found[name]) for name in names if name in found} if isinstance(found, dict) else {}


def _place(name: str, here: Any, mine: Facts) -> str | None:
    """Return where the repeated run looks for a file: absolute, or relative to its folders."""
    if not name.startswith(ELSEWHERE):
        path, cwd = str((here or {}).get("path") or ""), mine.get("cwd")
        return path if cwd and path.startswith(f"{cwd}/") else name
    if here:
        return str(here.get("path", "")) or None
    if name.startswith("/"):
        return name
    if name.startswith("../"):
        return os.path.normpath(Path(mine["cwd"]) / name) if mine.get("cwd") else None
    root, _, tail = name.partition("/")
    for entry in (mine.get("files") or {}).get("list") or []:
        first, _, rest = str(entry["name"]).partition("/")
        path = str(entry.get("path", ""))
        if first == root and rest and path.endswith("/" + rest):
            return path.removesuffix(rest) + tail
    return str(with_home(Path(name))) if root == "~" else None


def _is_file_of(path: Path, entry: Mapping[str, Any]) -> bool:
    try:
        if path.stat().st_size != entry.get("bytes"):
            return False
    except OSError:
        return False
    return not entry.get("whole") or not entry.get("sha256") or _same(path, str(entry["sha256"]))


def _order(_change: Change, _here: Any, there: Any, other: Other, mine: Facts) -> Made:
    """Return the intervention that sets the order in which folders list files, and the times by which
    they may be sorted.
    """
    return Intervention(plan={"listing": [Path(name).name for name in there]}, times=_times(other, mine)), ""


def _times(other: Other, mine: Facts) -> dict[str, float]:
    """Return when the files that the other side read were last changed there, by their paths on this side."""
    known = {entry["name"]: entry for entry in _read(mine)}
    found = {}
    for entry in _read(other.facts):
        place = _place(str(entry["name"]), known.get(entry["name"]), mine)
        moment = entry.get("changed") or _changed(Path(str(entry["path"])))
        if place and moment:
            found[place] = float(moment)
    return found


def _read(facts: Facts) -> list[Mapping[str, Any]]:
    """Return the files that a run read and did not create, without caches of libraries."""
    listed = (facts.get("files") or {}).get("list") or []
    return [each for each in listed if not each.get("made") and not is_cache(each)]


def _told_time(entry: Mapping[str, Any]) -> str:
    """Format the time of a file's last change in UTC; "" if it was not recorded."""
    moment = entry.get("changed")
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] if moment else ""


def _changed(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def other_times(base: str, mine: Facts, other: Other, names: SideNames) -> Iterator[Candidate]:
    """Return the probe that gives the files the modification times of the other side."""
    times = _times(other, mine)
    theirs = {entry["name"]: _told_time(entry) for entry in _read(other.facts)}
    pairs = [(e["name"], _told_time(e), theirs[e["name"]]) for e in _read(mine) if e["name"] in theirs]
    differing = [(name, *((x, y) if base == "A" else (y, x))) for name, x, y in pairs if x != y and x and y]
    if times and differing:
        name, left, right = differing[0]
        more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
        words = f"when {name}{more} was last changed: {left} {names.in_a} and {right} {names.in_b}"
        fix = "Derive nothing (no seed, no order, no choice of data) from when a file was last changed."
        yield Candidate("times", words, fix, Intervention(times=times), Kind.PROBE)


def _threads(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name == "intra_op":
        return Intervention(plan={"intra_op": int(there)}), ""
    return _variable(change, here, there, *rest)


def _cores(_change: Change, _here: Any, there: Any, other: Other, *_rest: Any) -> Made:
    if 0 < int(there or 0) <= other.cores:
        return Intervention(plan={"cpus": int(there)}), ""
    return None, f"the other side has {there} cores, and this computer has {other.cores}"


def _seed(_change: Change, here: Any, there: Any, *_rest: Any) -> Made:
    """Return the intervention that replaces this side's seed by the other's wherever the program sets it."""
    if isinstance(here, int) and isinstance(there, int):
        return Intervention(plan={"reseed": [here, there]}), ""
    return None, "a side without a seed is different in each run"


def _host(_change: Change, _here: Any, there: Any, *_rest: Any) -> Made:
    return Intervention(plan={"host": str(there)}), ""


def _command(_change: Change, _here: Any, there: Any, *_rest: Any) -> Made:
    return Intervention(command=tuple(there)), ""


def _stdin(_change: Change, _here: Any, there: Any, other: Other, *_rest: Any) -> Made:
    if there is None:
        return Intervention(stdin=Path("/dev/null")), ""
    kept = next((place for place in _kept(other, there) if _same(place, str(there))), None)
    return (Intervention(stdin=kept), "") if kept else (None, "what the other side read from it was not kept")


def _start(_change: Change, _here: Any, there: Any, *_rest: Any) -> Made:
    return Intervention(start=str(there)), ""


def _folder(_change: Change, _here: Any, there: Any, *_rest: Any) -> Made:
    """Return the intervention that changes the path only; the content of the folder stays."""
    if not is_folder(Path(str(there))):
        return None, "the other side's working folder is not on this computer"
    return Intervention(path=Path(str(there))), ""


def _isa(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name != "flags":
        return _variable(change, here, there, *rest)
    lacking = set(here) - set(there)
    if not lacking:
        return None, "the other processor has more instruction sets, and a run here can only use fewer"
    return cap_instructions(there), ""


def cap_instructions(flags: Sequence[str]) -> Intervention:
    """Return the variables that limit oneDNN, OpenBLAS and NumPy to the instructions of a processor with
    `flags`.
    """
    have = set(flags)
    if "avx512f" in have:
        level = "AVX512_CORE_VNNI" if "avx512_vnni" in have else "AVX512_CORE"
        return Intervention(env={"ONEDNN_MAX_CPU_ISA": level})
    level = "AVX2" if "avx2" in have else "AVX" if "avx" in have else "SSE41"
    core = {"AVX2": "Haswell", "AVX": "Sandybridge", "SSE41": "Nehalem"}[level]
    return Intervention(env={"ONEDNN_MAX_CPU_ISA": level, "OPENBLAS_CORETYPE": core})


def _onednn(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name != "onednn":
        return _variable(change, here, there, *rest)
    return Intervention(env={"TF_ENABLE_ONEDNN_OPTS": "1" if there else "0"}), ""


def _determinism(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name != "deterministic_ops":
        return _variable(change, here, there, *rest)
    return Intervention(plan={"deterministic": bool(there)}), ""


def _compile(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name in ("jit_compile", "run_eagerly", "steps_per_execution"):
        return Intervention(plan={"compile": {change.name: there}}), ""
    if change.name == "tf32":
        return Intervention(plan={"tf32": bool(there)}), ""
    return _variable(change, here, there, *rest)


def _policy(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name in ("policy", "floatx", "image_data_format"):
        return Intervention(plan={change.name: str(there)}), ""
    return _variable(change, here, there, *rest)


def _devices(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name != "devices":
        return _variable(change, here, there, *rest)
    if set(there or []) < set(here or []) and not any("GPU" in str(name) for name in there):
        return Intervention(env={"CUDA_VISIBLE_DEVICES": "-1"}), ""
    return None, "this computer does not have the other side's devices"


def _locale(change: Change, here: Any, there: Any, other: Other, *rest: Any) -> Made:
    if change.variable:
        return _variable(change, here, there, other, *rest)
    theirs = {**other.facts.get("variables", {}), **other.facts.get("environment", {})}
    names = ("LC_ALL", "LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LANG", "PYTHONUTF8")
    return Intervention(env={name: theirs.get(name) for name in names}), ""


def _timezone(change: Change, here: Any, there: Any, *rest: Any) -> Made:
    if change.name == "TZ":
        return _variable(change, here, there, *rest)
    january = int((there or [0])[0])
    sign = "-" if january >= 0 else "+"
    hours, minutes = divmod(abs(january) // 60, 60)
    return Intervention(env={"TZ": f"ORCH{sign}{hours}:{minutes:02d}"}), ""


_MAKERS: Mapping[str, Maker] = {
    "source": _source,
    "arguments": _arguments,
    "paths": _paths,
    "data": _data,
    "cache": _data,
    "settings": _data,
    "keras_json": _keras_json,
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
    "host": _host,
    "seed": _seed,
    "command": _command,
    "start": _start,
    "stdin": _stdin,
    "locale": _locale,
    "timezone": _timezone,
}


def other_neighbours(base: str, mine: Facts, other: Other, names: SideNames) -> Iterator[Candidate]:
    """Return the intervention with the files around the other side's folder, if they differ from this
    side's.
    """
    here, there = mine.get("cwd"), other.facts.get("cwd")
    if not here or not there or not is_folder(Path(str(there))):
        return
    parents = {Path(here).parent, Path(there).parent}
    if len(parents) == 1 or parents & SHARED:
        return
    a, b = (here, there) if base == "A" else (there, here)
    parents_said = f"in {Path(a).parent} {names.in_a} and {Path(b).parent} {names.in_b}"
    words = f"the files around the working folder, {parents_said}"
    fix = "Compare the folders around the two projects; keep what the script looks for there in the project."
    yield Candidate("around", words, fix, Intervention(path=Path(str(there)), around=True))


def other_packages(base: str, mine: Facts, other: Other, names: SideNames) -> Iterator[Candidate]:
    """Return the intervention with the other side's packages, if its interpreter is on this computer."""
    a, b = (mine, other.facts) if base == "A" else (other.facts, mine)
    words = versions(a, b, names)
    if not words:
        return
    words = f"packages of other versions: {words}"
    fix = "Install the same versions on both sides, from one lock."
    if other.python:
        yield Candidate("versions", words, fix, Intervention(python=other.python))
    else:
        why = "the other side's packages are not on this computer"
        yield Candidate("versions", words, fix, None, why=why)
