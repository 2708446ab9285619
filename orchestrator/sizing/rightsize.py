"""Which machine would have been right for a run, from its trace and the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from orchestrator import catalog, profiling
from orchestrator.errors import UsageError
from orchestrator.model import Need, Offer, clouds
from orchestrator.model.counted import rounded
from orchestrator.profiling import Evidence, machines
from orchestrator.profiling.machines import Times, Wanted
from orchestrator.session.project import Project

TRACE = "trace.jsonl"
WORTH = 0.9
"""Another machine is worth a change if it costs less than this share, even at worst."""

_MIB = 1 << 20


def profile_of_run(folder: Path, machine: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the `profile` of `run.json`: where the time went, what to change, and which machine would have
    been right.

    `machine` as in `run.json`, None if the run was on this computer. Return None if there is no trace.
    """
    trace = folder / TRACE
    if not trace.exists():
        return None
    memory = _memory_of(machine)
    evidence = profiling.evidence(trace, memory)
    found = asdict(profiling.summarise(trace, memory))
    size = right_size(evidence, machine)
    quoted = [_quoted(advice, evidence, machine) for advice in found["advice"]]
    unknown = [*found["unknown"], *_untold(evidence, machine)]
    return {**found, "advice": quoted, "right_size": size, "unknown": unknown}


def _memory_of(machine: Mapping[str, Any] | None) -> int | None:
    """Return the bytes of memory that a machine was created with, if its provider reports them."""
    stated = ((machine or {}).get("detail") or {}).get("memory")
    return stated if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0 else None


def _untold(evidence: Evidence, machine: Mapping[str, Any] | None) -> list[str]:
    """Return why no machine can be named, and what would help; nothing if the machine was free or the run
    was a short trial.
    """
    why = machines.untold(evidence)
    if why is None or evidence.short or not (machine or {}).get("price_usd_hour"):
        return []
    return [f"Which machine would be right: {why}. To learn it: {machines.remedy(evidence)}"]


def right_size(evidence: Evidence, machine: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what the run needs, what an epoch cost on its machine, and on the cheapest machine that is as
    fast.

    Prices in US dollars. `change` is None if no offer fits; `better` says whether the change is worth it.
    Return None if the trace has too little.
    """
    needs = machines.wanted(evidence)
    if needs is None:
        return None
    found = machines.right(evidence, catalog.offers(_need(needs, machine)))
    keep, change = _kept(evidence, machine), _changed(evidence, *found) if found else None
    return {
        "within": machines.WITHIN,
        "wanted": {
            "cpus": needs.cpus,
            "memory": needs.memory,
            "arch": needs.arch,
            "gpus": needs.gpus,
            "gpu_memory": needs.gpu_memory,
        },
        "reasons": list(needs.reasons),
        "keep": keep,
        "change": change,
        "better": _is_better(keep, change),
        "faster": _faster(evidence, needs, machine),
    }


def similar_types(run_id: str, folder: Path | str | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return overrides of a profile's resources, and their reasons, from what a fetched run turned out to
    need.

    If the run cannot tell how many cores it needs, they are left to the profile. Raise UsageError if there is
    no such run, or its trace has too little.
    """
    place = Project.at(folder).run(run_id)
    if not (place / TRACE).exists():
        raise UsageError(f"There is no trace of a run {run_id} in this folder.", next_command="orch pull")
    evidence = profiling.evidence(place / TRACE)
    told = machines.wanted(evidence)
    needs = told or machines.wanted_besides_cores(evidence)
    if needs is None:
        raise UsageError(
            f"It cannot be determined what {run_id} needs: "
            f"{machines.untold(evidence) or 'no size would be enough'}.",
            next_command=machines.remedy(evidence) or "orch size    # measures a step by itself, here",
        )
    spare = bool(evidence.usage.gpus) and not needs.gpus
    cores = (f"resources.cpus={needs.cpus}+",) if told else ()
    return (
        *cores,
        *_besides_cores(needs),
        *(("resources.accelerator=null",) if spare else ()),
    ), needs.reasons


def _besides_cores(needs: Wanted) -> list[str]:
    found = [f"resources.memory={-(-needs.memory // _MIB)} MiB+"]
    if needs.gpus and needs.gpu_memory:
        gib = needs.gpu_memory / (1 << 30)
        found.append(f'resources.accelerator={{"count": {needs.gpus}, "memory": "{gib:.1f} GiB+"}}')
    return found


# ---------------------------------------------------------------- machines and their price


def _need(needs: Wanted, machine: Mapping[str, Any] | None) -> Need:
    """Return the need, asked of the cloud and region of the run; of every cloud if it ran elsewhere."""
    cloud = (machine or {}).get("provider")
    if cloud not in catalog.clouds():
        return needs.need(clouds.ANY, None)
    places = clouds.traits(cloud).places
    return needs.need(cloud, places.region_of(str((machine or {}).get("zone") or "")) if places else None)


def _sold(need: Need) -> Iterator[Offer]:
    """Yield the offers, cheapest first, without those whose CPU cores are shared or limited by credits."""
    return (offer for offer in catalog.offers(need) if not offer.burstable)


def _kept(evidence: Evidence, machine: Mapping[str, Any] | None) -> dict[str, Any]:
    price = float((machine or {}).get("price_usd_hour") or 0.0)
    return {
        "instance_type": (machine or {}).get("instance_type"),
        "price_usd_hour": price,
        **_costs(evidence, price, Times(1.0, 1.0)),
    }


def _changed(evidence: Evidence, offer: Offer, times: Times) -> dict[str, Any]:
    return {
        "cloud": offer.cloud,
        "instance_type": offer.instance_type,
        "region": offer.region,
        "cpus": offer.cpus,
        "memory": offer.memory,
        "accelerator": offer.accelerator,
        "price_usd_hour": offer.price,
        "time_at_best": round(times.best, 3),
        "time_at_worst": round(times.worst, 3),
        **_costs(evidence, offer.price, times),
    }


def _costs(evidence: Evidence, price: float, times: Times) -> dict[str, Any]:
    """Return US dollars for an epoch, if its length is known, and for a thousand steps, at worst."""
    step = evidence.step
    if step is None:
        return {"usd_epoch": None, "usd_1000_steps": None}
    one = step * times.worst * price / 3600
    epoch = evidence.epoch_steps
    return {"usd_epoch": round(one * epoch, 9) if epoch else None, "usd_1000_steps": round(1000 * one, 9)}


def _is_better(keep: Mapping[str, Any], change: Mapping[str, Any] | None) -> bool:
    """Return whether the other machine does the same for clearly less; a machine that costs nothing is
    never replaced.
    """
    if change is None or not keep["price_usd_hour"]:
        return False
    return bool(change["price_usd_hour"] * change["time_at_worst"] < WORTH * keep["price_usd_hour"])


def _faster(evidence: Evidence, needs: Wanted, machine: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the cheapest offer with enough cores, if there were too few, and its cost at the predicted
    speed.
    """
    advice = next((each for each in profiling.apply(evidence) if each.rule == "cores"), None)
    if advice is None or not advice.gain or advice.amount is None:
        return None
    more = replace(needs, cpus=max(needs.cpus, int(advice.amount)))
    sold = next(iter(_sold(_need(more, machine))), None)
    time = 1 / advice.gain
    return _changed(evidence, sold, Times(time, time)) if sold else None


def _quoted(
    advice: Mapping[str, Any], evidence: Evidence, machine: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the advice, with a price if it asks for something that costs."""
    size = (advice["trial"] or {}).get("stage")
    needs = machines.wanted(evidence) if size else None
    if needs is None:
        return {**advice, "price": None}
    best = next(iter(_sold(replace(_need(needs, machine), local_ssd=size))), None)
    if best is None:
        return {**advice, "price": None}
    text = (
        f"{best.cloud} {best.instance_type} with {rounded(best.local_ssd / 1e9, 4)} GB of local SSD: "
        f"${best.price:g}/h; staging onto the disk that there is costs nothing"
    )
    return {**advice, "price": text}
