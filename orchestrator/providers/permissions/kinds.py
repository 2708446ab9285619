"""A permission, and the resources on which it is needed. Plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Cloud = Literal["aws", "gcp"]
Use = Literal["machines", "catalog", "doctor"]
"""machines: plan, up, status, train, down; catalog: orch catalog refresh; doctor: orch doctor CLOUD only."""

OUR_TAG = "orch-machine"
"""The AWS tag that the create call puts on everything that orch creates."""
OUR_NAMES = "orch-"
"""Prefix of that tag's value, and on Google of the name of every machine and disk that orch creates."""


@dataclass(frozen=True)
class Grant:
    """The resources on which a permission is needed, as narrow as a policy can express.

    `resources`: AWS: ARN patterns; Google: resource names as in IAM conditions, with {project} for the
    project (`*`: the whole project, because it cannot be narrowed). `conditions`: AWS only: operator, key,
    value.
    """

    resources: tuple[str, ...] = ("*",)
    conditions: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Permission:
    """A permission that a call needs.

    `needed`: the uses of orch that need it. `calls`: operations of the API, such as `ec2.run_instances`
    (boto3) or `compute.instances.insert` (Google's id of the method). `when`: a condition in words, "" for
    always. `setting`: the same condition as an environment variable and a pattern of its value, if it can be
    expressed so. `free`: it is always granted. `program`: the name of another program, started by orch, that
    makes the calls. `instead`: what orch does without the permission; "" if it cannot work without it. `api`:
    what must be enabled: Google's service; for AWS the name of the endpoint.
    """

    cloud: Cloud
    name: str
    why: str
    needed: frozenset[Use]
    calls: tuple[str, ...]
    api: str
    grants: tuple[Grant, ...] = (Grant(),)
    when: str = ""
    setting: tuple[str, str] | None = None
    free: bool = False
    program: str = ""
    instead: str = ""

    def applies(self, environ: Mapping[str, str]) -> bool:
        """Return whether the permission is needed with the settings in this environment. True if it has no
        `setting`.
        """
        if self.setting is None:
            return True
        variable, values = self.setting
        return re.fullmatch(values, environ.get(variable, "").strip()) is not None


@dataclass(frozen=True)
class Api:
    """A service of Google that must be enabled in the project."""

    name: str
    why: str
    needed: frozenset[Use]
    calls: tuple[str, ...] = ()
    """Calls that need only the API, and no permission."""


def uses(words: str) -> frozenset[Use]:
    return frozenset(use for use in get_args(Use) if use in words.split())
