"""What a doctor asks of a cloud, and what it finds. Nothing here costs, and nothing is made for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .needs import Offer


class CheckState(StrEnum):
    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"
    UNKNOWN = "could-not-tell"


class Topic(StrEnum):
    """What a check is about, in the order in which they are made."""

    SDK = "sdk"
    ENDPOINT = "endpoint"
    CREDENTIALS = "credentials"
    API = "api"
    PERMISSION = "permission"
    REGION = "region"
    NETWORK = "network"
    PLAN = "plan"
    POLICY = "policy"
    IMAGE = "image"
    QUOTA = "quota"


@dataclass(frozen=True)
class Check:
    """One thing looked at. `remedy`: the command, or what to add to a policy; None where all is well."""

    topic: Topic
    name: str
    state: CheckState
    detail: str
    remedy: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What the machine would be: `offers` in the order in which `up` would try them; `disk` in bytes.
    `image` is its name, None: what fits the offer.

    `region` is where to look whatever the offers say; None: where the first of them is that can be.
    """

    offers: tuple[Offer, ...]
    disk: int
    region: str | None = None
    image: str | None = None


@dataclass(frozen=True)
class Readiness:
    """Whether machines can be made. `account` is AWS's account or Google's project, `identity` as whom the
    cloud is asked, "" where that was not learned. `grant` is what gives all the missing permissions."""

    cloud: str
    identity: str
    account: str
    region: str
    offer: Offer | None
    checks: tuple[Check, ...]
    endpoints: Mapping[str, str] = field(default_factory=dict)
    grant: str | None = None

    @property
    def missing(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.state is CheckState.MISSING)


def ok(topic: Topic, name: str, detail: str) -> Check:
    return Check(topic, name, CheckState.OK, detail)


def warning(topic: Topic, name: str, detail: str, remedy: str | None) -> Check:
    """It does, and somebody should know."""
    return Check(topic, name, CheckState.WARNING, detail, remedy)


def missing(topic: Topic, name: str, detail: str, remedy: str | None) -> Check:
    return Check(topic, name, CheckState.MISSING, detail, remedy)


def unknown(topic: Topic, name: str, detail: str, remedy: str | None = None) -> Check:
    return Check(topic, name, CheckState.UNKNOWN, detail, remedy)
