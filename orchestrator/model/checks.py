"""What `orch doctor` asks of a cloud, and what it finds. A check costs nothing and creates nothing."""

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
    """The subject of a check, in the order in which checks are made."""

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
    """The result of one check. `remedy`: the command, or what to add to a policy; None if nothing is to
    be done.
    """

    topic: Topic
    name: str
    state: CheckState
    detail: str
    remedy: str | None = None


@dataclass(frozen=True)
class Wanted:
    """The machine to check for: `offers` in the order in which `up` would try them; `disk` in bytes. `image`:
    its name, None for the image that fits the offer.

    `region`: check this region, whatever the offers say; None for the region of the first offer that can be
    used.
    """

    offers: tuple[Offer, ...]
    disk: int
    region: str | None = None
    image: str | None = None


@dataclass(frozen=True)
class Readiness:
    """Whether machines can be created. `account` is AWS's account or Google's project; `identity` is the
    identity of the credentials, "" if it is not known. `grant`: a policy or command that gives all
    missing permissions.
    """

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
    """Return a check of something that works but needs attention."""
    return Check(topic, name, CheckState.WARNING, detail, remedy)


def missing(topic: Topic, name: str, detail: str, remedy: str | None) -> Check:
    return Check(topic, name, CheckState.MISSING, detail, remedy)


def unknown(topic: Topic, name: str, detail: str, remedy: str | None = None) -> Check:
    return Check(topic, name, CheckState.UNKNOWN, detail, remedy)
