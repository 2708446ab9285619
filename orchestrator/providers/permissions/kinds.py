"""What a permission is, and on what it is needed. Plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Cloud = Literal["aws", "gcp"]
Use = Literal["machines", "catalog", "doctor"]
"""machines: plan, up, status, train, down; catalog: orch catalog refresh; doctor: orch doctor CLOUD alone."""

OUR_TAG = "orch-machine"
"""Of AWS: the tag that everything of ours carries from the call that makes it."""
OUR_NAMES = "orch-"
"""How the value of that tag begins, and on Google the name of every machine and disk of ours."""


@dataclass(frozen=True)
class Grant:
    """On what a permission is needed, as narrow as a policy can say it.

    `resources`: AWS: ARN patterns; Google: resource names, {project} standing for the project, as IAM
    conditions have them (`*`: the project as a whole; it cannot be narrowed). `conditions`: AWS only:
    operator, key, value.
    """

    resources: tuple[str, ...] = ("*",)
    conditions: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Permission:
    """`needed`: for which of orch's uses. `calls`: the operations of the API that take it, as
    `ec2.run_instances` (boto3) or `compute.instances.insert` (Google's id of the method).

    `when`: only then is it needed; "" for always. `setting`: the same as a variable of the environment and a
    pattern of its value, where it is one. `free`: nobody can be refused it. `program`: of another program,
    which orch starts with this word, are the calls.
    `instead`: what orch does without it; "" where it can do nothing.
    `api`: what must be enabled: Google's service; of AWS the endpoint's name.
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
        """Whether the settings of this environment make it needed. True where no setting decides."""
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
    """Calls that take the API to be enabled, and no permission."""


def uses(words: str) -> frozenset[Use]:
    return frozenset(use for use in get_args(Use) if use in words.split())
