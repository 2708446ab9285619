"""The Free plan of a new AWS account: it launches only a few small machine types.

The code of that refusal, `InvalidParameterCombination`, has other causes too
(aws-samples/eks-workshop-v2#1644, splunk/attack_range#1302), so the Free Tier API is asked for the account's
plan.
"""

from __future__ import annotations

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Check, Topic
from orchestrator.model.checks import missing, ok, unknown
from orchestrator.providers.aws.clients import HOME, Clients, asking

CODE = "InvalidParameterCombination"
TYPES = ("c7i-flex.large", "m7i-flex.large", "t3.micro", "t3.small", "t4g.micro", "t4g.small")
"""The answer of `describe-instance-types --filters Name=free-tier-eligible,Values=true` in 2025-09
(RhinoSecurityLabs/cloudgoat#375, eks-workshop-v2#1644).
"""
UPGRADE = f"aws freetier upgrade-account-plan --account-plan-type PAID --region {HOME}"
_NAME = "account plan"


def is_limited(clients: Clients) -> bool:
    """Return whether the account is on the Free plan. Raises ProviderError if AWS does not say."""
    try:
        with asking(clients, HOME):
            answer = clients.client("freetier", HOME).get_account_plan_state()
    except ProviderError as error:
        if error.code == "ResourceNotFoundException":  # an account from before plans existed
            return False
        raise
    return bool(answer.get("accountPlanType") == "FREE")


def check(clients: Clients, instance_type: str) -> Check:
    try:
        limited = is_limited(clients)
    except ProviderError as error:
        return unknown(Topic.PLAN, _NAME, f"not seen: {error.code}")
    if not limited:
        return ok(Topic.PLAN, _NAME, "it may launch every type")
    if instance_type in TYPES:
        return ok(Topic.PLAN, _NAME, f"the Free plan, which may launch {instance_type}")
    return missing(Topic.PLAN, _NAME, _sentence(instance_type), UPGRADE)


def explained(error: ProviderError, clients: Clients, instance_type: str) -> ProviderError:
    """Return the refusal of a launch, with advice if the account's plan is, or may be, the cause."""
    if error.code != CODE or instance_type in TYPES:
        return error
    try:
        limited = is_limited(clients)
    except ProviderError:
        error.next_command = f"aws freetier get-account-plan-state --region {HOME}    # FREE: {UPGRADE}"
        return error
    if not limited:
        return error
    return ProviderError(Fault.INVALID, _sentence(instance_type), code="FreePlan", next_command=UPGRADE)


def _sentence(instance_type: str) -> str:
    return (
        f"The AWS account is on the Free plan, which launches only {', '.join(TYPES)}, not {instance_type}. "
        "The Paid plan may launch it."
    )
