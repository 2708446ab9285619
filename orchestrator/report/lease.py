"""Format leases, plans and the result of `orch down`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.model.counted import counted
from orchestrator.report.units import duration, money, share, size, table

if TYPE_CHECKING:
    from orchestrator.model import DownReport, LeaseStatus


def status_text(leases: Sequence[LeaseStatus], now: float | None = None) -> str:
    """One block per lease: what runs, until when, its cost and its runs."""
    return "\n\n".join(_lease(lease, time.time() if now is None else now) for lease in leases)


def nothing_leased(elsewhere: Sequence[str], up: str) -> str:
    """The text for a project without a lease. `elsewhere`: other machines of the user. `up`: the command that
    leases one.
    """
    return f"{_nothing(elsewhere)}\nNext: {up}"


def _lease(lease: LeaseStatus, now: float) -> str:
    where = dict.fromkeys(part for part in (lease.cloud, lease.instance_type, lease.zone) if part)
    lines = [f"{lease.lease}  {lease.state}  {' '.join(where)}"]
    if lease.machine:
        lines.append(f"  {'machine':<9} {lease.machine}")
    if lease.owner:
        lines.append(f"  {'owner':<9} {lease.owner}")
    shown = ("tier", "address", "lost")
    lines += [f"  {name:<9} {lease.detail[name]}" for name in shown if lease.detail.get(name)]
    lines.append(f"  {'cost':<9} {money(lease.cost)} so far, {money(lease.price)}/h")
    if lease.deadline and lease.state not in ("gone", "closed"):
        at = datetime.fromtimestamp(lease.deadline, UTC).strftime("%Y-%m-%d %H:%M UTC")
        left = lease.deadline - now
        ends = f"powers itself off at {at}, in {duration(left)}"
        ends = ends if lease.deadline_proven else f"{at}, in {duration(left)}; no timer is known"
        passed = f"passed at {at}, {duration(-left)} ago by this computer's clock"
        lines.append(f"  {'deadline':<9} {ends if left > 0 else passed}")
    if lease.state == "stopped":
        lines.append(
            f"  {lease.detail.get('stopped') or 'It is stopped and may still cost money: orch down'}"
        )
    if lease.state == "gone":
        lines.append(
            "  The machine is gone (deadline, idleness, power-off, or deleted by its cloud). Next: orch down"
        )
    if lease.unseen:
        lines.append(f"  {'unknown':<9} {lease.unseen}")
    if lease.damaged:
        lines.append(_damaged(lease))
    if lease.runs:
        rows = [["run", "state", "collected"]]
        rows += [[run["run_id"], run["state"], _collected(run)] for run in lease.runs]
        lines.append(table(rows, indent="  "))
        lines += [f"  Lost: {run['run_id']}. {run['lost']}" for run in lease.runs if run.get("lost")]
    return "\n".join(lines)


def _damaged(lease: LeaseStatus) -> str:
    said = f"  {'ledger':<9} damaged: .orch/{lease.lease}/ledger.jsonl has lines that cannot be read"
    if lease.stale:
        said = f"  {'ledger':<9} not readable now: {lease.stale.rstrip('.')}; its last local copy is shown"
    if lease.state == "gone":
        return f"{said}; the machine may have had runs that are not listed"
    if not lease.runs_known:
        why = "was not asked" if lease.state == "unknown" else "does not answer"
        return f"{said}, and the machine {why}. It may have unlisted runs. Next: orch status --live"
    return f"{said}; the runs are listed as the machine reports them"


def _collected(run: Mapping[str, Any]) -> str:
    return "yes" if run["collected"] else "lost" if run.get("lost") else "no"


def plan_text(plan: Mapping[str, Any]) -> str:
    """The plan's actions with their reasons and prices, and the near misses. See `orch plan --json`."""
    lines = [_action(action) for action in plan["actions"]]
    offers = plan.get("offers") or []
    if offers:
        rows = [["type", "zone", "CPUs", "memory", "accelerator", "$/h", "worst case", "spot saves"]]
        rows += [_offer(offer) for offer in offers[:10]]
        rows = rows if any(offer.get("on_demand") for offer in offers[:10]) else [row[:-1] for row in rows]
        lines += ["", table(rows, indent="  ")]
    lines += _together(plan)
    lines += _beside(plan)
    if plan.get("refusal"):
        lines.append(plan["refusal"])
    for miss in (plan.get("rejected") or [])[:5]:
        lines.append(f"  not {miss['instance_type']}: {miss['reason']}")
    if any(offer.get("price_is_bound") for offer in offers[:10]):
        lines.append("  ≤: the on-demand price, an upper bound: the spot price is not recorded.")
    lines += [f"  {warning}" for warning in plan.get("warnings") or []]
    return "\n".join(lines)


def _together(plan: Mapping[str, Any]) -> Iterator[str]:
    """The price of several machines that train together."""
    nodes, price, worst = plan.get("nodes", 1), plan.get("price"), plan.get("worst_case")
    if nodes > 1 and price is not None:
        until = "" if worst is None else f", at most {money(worst * nodes)} until the deadline"
        yield f"  {counted(nodes, 'such machine')}: {money(price * nodes)}/h together{until}"


def _beside(plan: Mapping[str, Any]) -> Iterator[str]:
    """Costs besides the machine: an extra disk, a reservation."""
    disk = plan.get("disk")
    if disk:
        asked = [f"{disk['iops']} IOPS"] if disk["iops"] else []
        asked += [f"{disk['throughput']} MiB/s"] if disk["throughput"] else []
        what = ", ".join([f"{size(disk['size'])} {disk['type']}", *asked])
        yield f"  disk: {what}, an additional {money(disk['usd_hour'])}/h (price in {disk['priced_in']})"
    if plan.get("image"):
        yield f"  image: {plan['image']}, which holds the lock's packages; each file is verified all the same"
    if plan.get("reservation"):
        yield f"  reservation: {plan['reservation']}; its cost is not part of these prices"


def _action(action: Mapping[str, Any]) -> str:
    return f"{action['action']} {action['what']}: {action['reason']}"


def _offer(offer: Mapping[str, Any]) -> list[str]:
    accelerator = f"{offer['accelerator']} x{offer['accelerator_count']}" if offer.get("accelerator") else "-"
    worst = offer.get("worst_case")
    return [
        offer["instance_type"],
        offer["zone"] or f"{offer['region']} (any)",
        str(offer["cpus"]),
        size(offer["memory"]),
        accelerator,
        ("≤ " if offer.get("price_is_bound") else "") + money(offer["price"]),
        "-" if worst is None else money(worst),
        _saving(offer),
    ]


def _saving(offer: Mapping[str, Any]) -> str:
    """The share of the on-demand price that spot saves, if both are known."""
    on_demand = offer.get("on_demand")
    if not on_demand or offer.get("price_is_bound"):
        return "-"
    return share(1 - offer["price"] / on_demand)


def _nothing(elsewhere: Sequence[str]) -> str:
    if not elsewhere:
        return "This project has no leased machine."
    return (
        f"This project has no leased machine. Other projects have {counted(len(elsewhere), 'machine')} on "
        f"this computer: {', '.join(elsewhere)}. To delete them too: orch down --all"
    )


def targets_text(targets: Sequence[Mapping[str, Any]], *, others: bool = False) -> str:
    """One row per machine that `down --all` found. `others`: machines of other owners are deleted too."""
    rows = [["", "machine", "where", "owner", "state", "$/h", "runs"]]
    for one in targets:
        ended = one["mine"] or others
        where = " ".join(part for part in (one["cloud"], one["instance_type"], one["zone"]) if part)
        owner = "you" if one["mine"] else one["owner"] or "unknown"
        rows.append(
            [
                "delete" if ended else "keep",
                one["id"] or f"of {one['lease']}",
                where,
                owner,
                one["state"],
                money(one["price"]),
                _runs(one),
            ]
        )
    return table(rows)


def _runs(target: Mapping[str, Any]) -> str:
    if not target["known"]:
        return "not known on this computer"
    said = ["not known: the ledger is damaged"] if target["damaged"] else []
    said += [f"{name} running" for name in target["running"]]
    said += [f"{name} not pulled" for name in target["uncollected"]]
    return ", ".join(said) or "-"


def down_text(report: DownReport, elsewhere: Sequence[str] = ()) -> str:
    if not report.machines and not report.leases:
        return "\n".join([*_unseen(report), *_left(report)]) or _nothing(elsewhere)
    ended = (
        counted(len(report.machines), "machine") if report.machines else "no machine (it was already gone)"
    )
    took = f"The lease took {duration(report.seconds)} and cost {money(report.cost)}."
    left = "no machine is left" if report.lost else "nothing is left"
    left = left if report.proven_gone else "not every region could be checked"
    first = f"Deleted {ended}; {left}. {took}"
    return "\n".join([first, *_unseen(report), *_lost(report), *_unnoted(report), *_left(report)])


def _unseen(report: DownReport) -> list[str]:
    return [
        f"{region} did not answer; machines may be running there and cost money: {why}"
        for region, why in report.unseen.items()
    ]


def _lost(report: DownReport) -> list[str]:
    if not report.lost:
        return []
    return [
        "Results that were not pulled are lost with the machine:",
        *(f"  {run['run_id']}: {run['detail']}" for run in report.lost),
        "Their records, and the output that was received, are in runs/.",
    ]


def _left(report: DownReport) -> list[str]:
    """Leases without a machine, which `orch down` in their folder closes."""
    if not report.left:
        return []
    where = (
        f"  {one['lease']}: cd {shlex.quote(one['folder'])} && orch down {one['lease']}"
        for one in report.left
    )
    return ["These leases have no machine but are still open. To close them:", *where]


def _unnoted(report: DownReport) -> list[str]:
    if not report.unnoted:
        return []
    return [
        "The end of the lease could not be recorded in this folder:",
        *(f"  {text}" for text in report.unnoted),
        "`orch status` shows the lease as open until it is. Once that is fixed: orch down",
    ]
