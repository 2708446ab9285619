"""The changes to a pipeline that can be made from outside, as a script would make them, one at a time."""

from __future__ import annotations

import inspect
import os
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from ..observe.digest import describe
from ..steps.inputs import work_of
from .calls import READERS, Call, call_of, chain, rebuilt
from .data import size as bytes_of
from .staging import to_copies

MOST_CALLS = 32
"""Parallel calls asked for where calls wait rather than compute."""

_WEIGHED = 8
"""Elements that are weighed, to know what all of them take."""

_PASSIVE = ("prefetch", "with_options")
_COUNTABLE = ("map", "batch", "padded_batch", "shuffle", "repeat", "prefetch", "with_options", "cache")
_RANDOM = ("shuffle", "sample_from_datasets", "rejection_resample")


class Fix(NamedTuple):
    """A change. `build` returns the pipeline that is timed, `twin` the one whose batches are compared (built
    afresh).

    `edits`: what to write where, as {file, line, call, keyword} or {file, line, call, after}. `place`: the
    map or interleave calls that it changes, by their number from the end. `cores` gives the process more
    cores instead.
    """

    name: str
    edits: List[Dict[str, Any]]
    build: Callable[[Any], Any]
    twin: Callable[[Any], Any]
    cores: bool = False
    facts: Mapping[str, Any] = MappingProxyType({})


class Wishes(NamedTuple):
    """What the fixes should consider. `waits`: the pipeline waits more than it computes; `parallel`: the
    number of parallel calls that would keep up with the step. `batches`: how many one window takes. `room`:
    bytes of memory that a cache may take.
    """

    cores: int
    waits: bool
    parallel: int
    batches: int
    room: int


def fixes(dataset: Any, wishes: Wishes, staged: Dict[str, str], rate: float) -> List[Fix]:
    """Return the fixes that apply to this pipeline. `rate`: bytes a second of the disk with the `staged`
    copies.
    """
    found = [
        _calls("parallel map", dataset, ("map",), wishes),
        _calls("parallel interleave", dataset, ("interleave",), wishes),
        _prefetch(dataset),
        _cache(dataset, wishes),
        _fewer_threads(dataset, wishes),
    ]
    kept = [fix for fix in found if fix is not None]
    together = [fix for fix in kept if fix.name in ("parallel map", "parallel interleave", "prefetch")]
    if len(together) > 1:
        kept.append(_together(together))
    if staged:
        kept.append(_staging(staged, rate))
    if _more_cores() > wishes.cores:
        kept.append(Fix("more cores", [], _same, _fresh, cores=True, facts={"cores": _more_cores()}))
    return kept


def _same(dataset: Any) -> Any:
    return dataset


def _unchanged(_dataset: Any, _call: Call) -> None:
    return None


def _fresh(dataset: Any) -> Any:
    return rebuilt(dataset, _unchanged, fresh=True)


def fresh(dataset: Any) -> Any:
    """Build the same pipeline again: its first pass equals the first pass of the script's own."""
    return _fresh(dataset)


# ---------------------------------------------------------------- parallel calls

_PLACES = {"map": 2, "interleave": 4}


def _set(call: Call, value: Any) -> Call:
    place = _PLACES[call.name]
    if len(call.args) > place:
        return call._replace(args=(*call.args[:place], value, *call.args[place + 1 :]))
    return call.with_(num_parallel_calls=value)


def _parallel(call: Call) -> Any:
    return call.given(_PLACES[call.name], "num_parallel_calls")


def _number(value: Any) -> Optional[int]:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def _calls(name: str, dataset: Any, names: Any, wishes: Wishes) -> Optional[Fix]:
    serial = [
        (one, call)
        for one, call in chain(dataset)
        if call.name in names
        and call.site
        and _number(_parallel(call)) in (None, 1)
        and not _given_none(call)
        and _files_at_once(call) != 1
    ]
    if not serial:
        return None
    unbound = wishes.waits and names == ("map",) and _can_unbind(dataset)
    value = _at_once(wishes, unbound or names != ("map",))
    chosen = {id(one) for one, _ in serial}

    def change(one: Any, call: Call) -> Optional[Call]:
        if id(one) not in chosen:
            return None
        wanted = _set(call, _within(call, value))
        return wanted.with_(use_unbounded_threadpool=True) if unbound else wanted

    text = f"num_parallel_calls={value if value > 0 else 'tf.data.AUTOTUNE'}"
    text += ", use_unbounded_threadpool=True" if unbound else ""
    return Fix(
        name,
        [_edit(call, keyword=text.replace(f"={value}", f"={_within(call, value)}")) for _, call in serial],
        lambda whole: rebuilt(whole, change),
        lambda whole: rebuilt(whole, change, fresh=True),
        facts={"parallel": value, "calls": len(serial)},
    )


def _files_at_once(call: Call) -> Optional[int]:
    """Return how many files an interleave was told to open at once, None if it was not: more would change the
    order of elements.
    """
    return _number(call.given(2, "cycle_length")) if call.name == "interleave" else None


def _within(call: Call, value: int) -> int:
    """Limit parallel calls of an interleave to the files that it has open."""
    most = _files_at_once(call) or 0
    return min(value, most) if most > 0 and value > 0 else value


def _at_once(wishes: Wishes, threads: bool) -> int:
    """Return the parallel calls: tf.data's own choice if they compute; if they wait, as many as keep up with
    the step, if there are `threads` for them beyond one per core.
    """
    if not wishes.waits:
        return -1
    return max(wishes.cores, wishes.parallel) if threads else wishes.cores


def _can_unbind(dataset: Any) -> bool:
    """Whether a map can have threads of its own: tf.data's common pool has one for each core."""
    return "use_unbounded_threadpool" in inspect.signature(type(dataset).map).parameters


def _given_none(call: Call) -> bool:
    """Whether parallelism was given as a tensor, which is not inspected."""
    value = _parallel(call)
    return value is not None and _number(value) is None


def _edit(call: Call, **what: str) -> Dict[str, Any]:
    file, line = call.site or ("", 0)
    return {"file": file, "line": line, "call": call.name, **what}


def _together(several: List[Fix]) -> Fix:
    def build(dataset: Any) -> Any:
        for fix in several:
            dataset = fix.build(dataset)
        return dataset

    def twin(dataset: Any) -> Any:
        dataset = several[0].twin(dataset)
        for fix in several[1:]:
            dataset = fix.build(dataset)
        return dataset

    name = " + ".join(fix.name for fix in several)
    facts = {key: value for fix in several for key, value in fix.facts.items()}
    return Fix(name, [edit for fix in several for edit in fix.edits], build, twin, facts=facts)


# ---------------------------------------------------------------- prefetch, threads


def _last_of_script(dataset: Any) -> Optional[Call]:
    return next((call for _, call in chain(dataset) if call.site), None)


def _prefetch(dataset: Any) -> Optional[Fix]:
    """Add a prefetch at the end of what the script built; Keras may have added to it."""
    listed = chain(dataset)
    for _, call in listed:
        if call.name == "prefetch":
            return None
        if call.site and call.name not in _PASSIVE:
            break
    last = _last_of_script(dataset)
    if last is None:
        return None
    return Fix(
        "prefetch",
        [_edit(last, after=".prefetch(tf.data.AUTOTUNE)")],
        lambda whole: whole.prefetch(-1),
        lambda whole: _fresh(whole).prefetch(-1),
    )


def _fewer_threads(dataset: Any, wishes: Wishes) -> Optional[Fix]:
    crowd = 4 * wishes.cores
    many = {
        id(one): call
        for one, call in chain(dataset)
        if call.name in _PLACES and call.site and (_number(_parallel(call)) or 0) >= crowd
    }
    threading = dataset.options().threading
    own = _number(threading.private_threadpool_size) or 0
    if not many and own < crowd:
        return None

    def change(one: Any, call: Call) -> Optional[Call]:
        return _set(call, -1) if id(one) in many else None

    def build(whole: Any) -> Any:
        return _pool(rebuilt(whole, change), own, crowd, wishes.cores)

    edits = [_edit(call, keyword="num_parallel_calls=tf.data.AUTOTUNE") for call in many.values()]
    if own >= crowd:
        last = next((call for _, call in chain(dataset) if call.name == "with_options" and call.site), None)
        what = f"options.threading.private_threadpool_size = {wishes.cores}"
        edits += [{**_edit(last, before=what)}] if last else []
    return Fix(
        "fewer threads",
        edits,
        build,
        lambda whole: _pool(rebuilt(whole, change, fresh=True), own, crowd, wishes.cores),
        facts={"threads": max([own, *(_number(_parallel(call)) or 0 for call in many.values())])},
    )


def _pool(dataset: Any, own: int, crowd: int, cores: int) -> Any:
    import tensorflow as tf

    if own < crowd:
        return dataset
    options = tf.data.Options()
    options.threading.private_threadpool_size = cores
    return dataset.with_options(options)


def _more_cores() -> int:
    """Return the cores of this computer that the process was not given; a quota cannot be lifted."""
    return os.cpu_count() or 1


# ---------------------------------------------------------------- cache


def _cache(dataset: Any, wishes: Wishes) -> Optional[Fix]:
    """Add a cache after the last call below which nothing is random; tried on as much as one window takes.

    Only if the dataset tells its size and all of it fits in memory: otherwise the advice could not be
    followed.
    """
    place = _cacheable(dataset)
    if place is None or any(call.name == "cache" for _, call in chain(dataset)):
        return None
    each = _elements_a_batch(dataset, place)
    size = int(place.cardinality())
    if each is None or size <= 0:
        return None
    needed = each * (wishes.batches + 4)
    whole_bytes = _element_bytes(place) * size
    if whole_bytes > wishes.room:
        return None

    def tried(old: Any, new: Any) -> Any:
        if old is not place:
            return new
        return (new if size <= needed else new.take(needed)).cache().repeat()

    def plain(old: Any, new: Any) -> Any:
        return new.cache() if old is place else new

    call = call_of(place)
    return Fix(
        "cache",
        [_edit(call, after=".cache()")] if call else [],
        lambda whole: rebuilt(whole, _unchanged, tried),
        lambda whole: rebuilt(whole, _unchanged, plain, fresh=True),
        facts={"elements": size, "bytes": whole_bytes, "above": _above(dataset, place)},
    )


def _element_bytes(dataset: Any) -> int:
    """Return the memory of an element at that point, where it may be larger than later in the pipeline."""
    sizes = [bytes_of(element) for element in dataset.take(_WEIGHED)]
    return max(1, round(sum(sizes) / max(1, len(sizes))))


def _cacheable(dataset: Any) -> Any:
    listed = chain(dataset)
    for index, (one, call) in enumerate(listed):
        rest = listed[index:]
        calm = not any(_is_random(other, other_call) for other, other_call in rest)
        work = any(
            other.name in ("map", "interleave", "flat_map", "from_generator", *READERS) for _, other in rest
        )
        if calm and call.name not in (*_PASSIVE, "repeat"):
            return one if work and call.site and _repeats_itself(one) else None
    return None


def _is_random(dataset: Any, call: Call) -> bool:
    if call.name == "list_files":
        return bool(call.given(1, "shuffle", True) is not False)
    work = work_of(dataset)
    return call.name in _RANDOM or call.name == "repeat" or bool(work and work.draws)


def _repeats_itself(dataset: Any) -> bool:
    """Whether two passes give the same elements, if Python code creates them; checked on a few."""
    works = [work_of(one) for one, _ in chain(dataset)]
    generated = any(call.name == "from_generator" for _, call in chain(dataset))
    if not generated and not any(work and work.python is not False for work in works):
        return True
    passes = [list(map(_digest, dataset.take(4))) for _ in range(2)]
    return passes[0] == passes[1]


def _digest(element: Any) -> List[str]:
    import numpy as np
    import tensorflow as tf

    flat = tf.nest.flatten(element, expand_composites=True)
    return [describe(np.asarray(part))["sha256"] for part in flat]


def _elements_a_batch(dataset: Any, place: Any) -> Optional[int]:
    """Return how many elements at `place` make one batch; None if that is not fixed."""
    each = 1
    for one, call in chain(dataset):
        if one is place:
            return each
        if call.name not in _COUNTABLE:
            return None
        if call.name in ("batch", "padded_batch"):
            size = _number(call.given(1, "batch_size"))
            if size is None:
                return None
            each *= size
    return None


def _above(dataset: Any, place: Any) -> List[str]:
    """Return the calls that still process every element after the cache."""
    names = []
    for one, call in chain(dataset):
        if one is place:
            break
        names.append(call.name)
    return names


# ---------------------------------------------------------------- staging


def _staging(there: Dict[str, str], rate: float) -> Fix:
    change, after = to_copies(there)
    return Fix(
        "staging",
        [],
        lambda whole: rebuilt(whole, change, after),
        lambda whole: rebuilt(whole, change, after, fresh=True),
        facts={"files": len(there), "folder": os.path.commonpath(list(there)), "rate": round(rate)},
    )
