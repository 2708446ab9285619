"""Call IAM's policy simulator for the caller: it shows what a policy allows under a condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.model import Offer
from orchestrator.providers.aws.clients import Clients
from orchestrator.providers.aws.faults import code_of
from orchestrator.providers.permissions import Grant, Permission

_SOME = "0123456789abcdef0"


@dataclass(frozen=True)
class Caller:
    """The caller's ARN, account and region."""

    clients: Clients
    region: str
    arn: str
    account: str


class Simulation:
    """IAM's policy simulator. It is not called again after it refused."""

    def __init__(self, caller: Caller, offer: Offer | None) -> None:
        self._caller = caller
        self._offer = offer
        self.refusal = ""
        """The error code of the simulator's refusal; "" while it answers."""

    def decision(self, permission: Permission) -> str:
        """Return the decision of the caller's policies for resources that orch creates: allowed, implicitDeny
        or explicitDeny; "" if unknown.
        """
        said: set[str] = set()
        for wanted in permission.grants:
            if not self.refusal:
                said |= self._decisions(permission.name, wanted)
        if self.refusal:
            return ""
        return next((word for word in ("explicitDeny", "implicitDeny") if word in said), "allowed")

    def _decisions(self, action: str, wanted: Grant) -> set[str]:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        kind, name = principal(self._caller.arn)
        source = f"{_arn_start(self._caller.arn)}:iam::{self._caller.account}:{kind}/{name}"
        resources = [self._concrete(each, name) for each in wanted.resources if each != "*"]
        more = {"ResourceArns": resources} if resources else {}
        iam = self._caller.clients.client("iam", self._caller.clients.home)
        try:
            answer = iam.simulate_principal_policy(
                PolicySourceArn=source, ActionNames=[action], ContextEntries=self._context(wanted), **more
            )
        except (BotoCoreError, ClientError, ResponseParserError) as error:
            self.refusal = code_of(error)
            return set()
        return set(_told(answer))

    def _concrete(self, pattern: str, name: str) -> str:
        """Return an ARN in the caller's account and region that matches the pattern."""
        _, _, service, region, account, resource = pattern.split(":", 5)
        region = self._caller.region if region == "*" else region
        account = self._caller.account if account == "*" else account
        resource = resource.replace("${aws:username}", name).replace("*", _SOME)
        return f"{_arn_start(self._caller.arn)}:{service}:{region}:{account}:{resource}"

    def _context(self, wanted: Grant) -> list[dict[str, Any]]:
        said = {key: value.replace("*", "doctor") for _, key, value in wanted.conditions}
        said |= {"aws:RequestedRegion": self._caller.region, "ec2:Region": self._caller.region}
        if self._offer:
            said["ec2:InstanceType"] = self._offer.instance_type
        return [
            {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in said.items()
        ]


def _told(answer: Mapping[str, Any]) -> Iterator[str]:
    for result in answer.get("EvaluationResults", ()):
        yield str(result["EvalDecision"])
        for each in result.get("ResourceSpecificResults", ()):
            yield str(each["EvalResourceDecision"])


def principal(arn: str) -> tuple[str, str]:
    """Return "user" or "role", and its name. For the session of a role it is that role, whose policies
    apply.
    """
    resource = arn.rpartition(":")[2]
    kind, _, rest = resource.partition("/")
    if kind == "assumed-role":
        return "role", rest.partition("/")[0]
    return (kind, rest) if rest else ("user", resource)


def _arn_start(arn: str) -> str:
    """Return "arn:aws", or the same for another partition."""
    return ":".join(arn.split(":")[:2])
