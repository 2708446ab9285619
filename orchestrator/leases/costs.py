"""Costs of leases so far, by lease, project and month, from the ledgers and their prices."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.ledger import Holding, Lease
from orchestrator.model import clouds
from orchestrator.session.owner import known_projects
from orchestrator.session.project import Project

_DIGITS = 6


@dataclass(frozen=True)
class LeaseCost:
    """One lease. `months`: US dollars by month (UTC, "2026-11"). `usd_hour`: what its running machine costs
    now.

    `to_come`: the most that it still costs if it is not deleted before its deadline.
    """

    lease: str
    project: str
    profile: str
    cloud: str
    is_open: bool
    opened_at: float
    seconds: float
    usd: float
    usd_hour: float
    to_come: float
    months: Mapping[str, float]


@dataclass(frozen=True)
class ImageCost:
    """An image that was made and not deleted since. `usd_month`: the most that it costs in US dollars a
    month.
    """

    image: str
    project: str
    cloud: str
    usd_month: float


@dataclass(frozen=True)
class Costs:
    """US dollars, at the prices for which the machines were rented, without tax and network traffic.

    `running`: how many machines run, those that cost nothing included. `images`: those that cost, which are
    in no other sum.
    """

    leases: tuple[LeaseCost, ...]
    now: float
    running: int = 0
    images: tuple[ImageCost, ...] = ()

    @property
    def usd(self) -> float:
        return round(sum(one.usd for one in self.leases), _DIGITS)

    @property
    def projects(self) -> dict[str, float]:
        return _summed((one.project, one.usd) for one in self.leases)

    @property
    def months(self) -> dict[str, float]:
        return _summed(each for one in self.leases for each in one.months.items())

    def this_month(self, project: Path | None = None) -> float:
        """The costs of this month, of one project or of all."""
        mine = (one for one in self.leases if project is None or one.project == str(project))
        return sum(one.months.get(_month(self.now), 0.0) for one in mine)

    def to_come(self, project: Path | None = None) -> float:
        """What the existing machines may cost until their deadlines."""
        return sum(one.to_come for one in self.leases if project is None or one.project == str(project))

    def as_json(self) -> dict[str, Any]:
        return {
            "leases": [asdict(one) for one in self.leases],
            "projects": self.projects,
            "months": self.months,
            "usd": self.usd,
            "usd_hour": round(sum(one.usd_hour for one in self.leases), _DIGITS),
            "to_come": round(self.to_come(), _DIGITS),
            "images": [asdict(one) for one in self.images],
        }


def costs(folder: Path | str | None = None, *, now: float | None = None) -> Costs:
    """Read every ledger of this project and of the other projects that this computer knows. Asks no cloud."""
    moment = time.time() if now is None else now
    here = Project.at(folder)
    roots = dict.fromkeys((here.root, *known_projects()))
    known = [(lease, root) for root in roots for lease in Project(root).leases()]
    found = [_of(lease, root, moment) for lease, root in known]
    running = sum(len(_running(lease, moment)) for lease, _ in known)
    images = tuple(image for image in _images(known) if image.usd_month)
    return Costs(tuple(sorted(found, key=lambda one: one.opened_at)), moment, running, images)


def _images(known: Iterable[tuple[Lease, Path]]) -> Iterator[ImageCost]:
    """The images in the ledgers; one that was deleted elsewhere is among them."""
    told: set[tuple[str, str, str]] = set()
    for lease, root in known:
        made = lease.image
        if made is None or (made.cloud, made.region, made.name) in told:
            continue
        told.add((made.cloud, made.region, made.name))
        market = clouds.traits(made.cloud).images if clouds.exists(made.cloud) else None
        price = market.usd_month_of(made.disk, made.stored) if market else 0.0
        yield ImageCost(made.name, str(root), made.cloud, price)


def _of(lease: Lease, root: Path, now: float) -> LeaseCost:
    spans = [(*span, held) for held in lease.holdings if (span := _span(held, lease, now))]
    months = _summed(
        (month, seconds / 3600 * held.usd_hour)
        for begun, ended, held in spans
        for month, seconds in by_month(begun, ended)
    )
    running = _running(lease, now)
    return LeaseCost(
        lease=lease.id,
        project=str(root),
        profile=str(lease.profile.get("name", "")),
        cloud=str(lease.profile.get("cloud", "")),
        is_open=lease.open,
        opened_at=lease.opened_at,
        seconds=round(lease.seconds(now), 3),
        usd=round(lease.cost(now), _DIGITS),
        usd_hour=round(sum(held.usd_hour for held in running), _DIGITS),
        to_come=round(sum(_left(held, now) for held in running) + _asked_for(lease, now), _DIGITS),
        months=months,
    )


def _span(held: Holding, lease: Lease, now: float) -> tuple[float, float] | None:
    seconds = held.seconds(lease.closed_at or now)
    return (held.created_at, held.created_at + seconds) if seconds > 0 else None


def _running(lease: Lease, now: float) -> list[Holding]:
    return [held for held in lease.holdings if lease.open and _runs(held, now)]


def _runs(held: Holding, now: float) -> bool:
    return held.ended_at is None and (held.deadline is None or held.deadline > now)


def _left(held: Holding, now: float) -> float:
    return held.usd_hour * max(0.0, (held.deadline or now) - now) / 3600


def _asked_for(lease: Lease, now: float) -> float:
    """What a machine may cost whose create call was sent and has no known result."""
    waiting = (attempt for attempt in lease.attempts if lease.open and not attempt.settled)
    return sum(attempt.price * max(0.0, attempt.deadline - now) / 3600 for attempt in waiting)


def by_month(begun: float, ended: float) -> Iterator[tuple[str, float]]:
    """(month in UTC, seconds in it) for each month of a time span."""
    while begun < ended:
        end = min(ended, _next_month(begun))
        yield _month(begun), end - begun
        begun = end


def _next_month(moment: float) -> float:
    then = datetime.fromtimestamp(moment, UTC)
    year, month = (then.year + 1, 1) if then.month == 12 else (then.year, then.month + 1)
    return datetime(year, month, 1, tzinfo=UTC).timestamp()


def _month(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m")


def _summed(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    total: defaultdict[str, float] = defaultdict(float)
    for key, usd in pairs:
        total[key] += usd
    return {key: round(usd, _DIGITS) for key, usd in sorted(total.items())}
