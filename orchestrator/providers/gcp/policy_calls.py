"""The calls of Google's API about resource policies, which place machines close together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.gcp.calls import (
    WORK_S,
    Calls,
    Json,
    is_absence,
    once,
    plain,
    require_complete,
)
from orchestrator.providers.gcp.faults import of_operation
from orchestrator.providers.gcp.operations import follow, is_done
from orchestrator.providers.gcp.refusing import Doing

POLICY = Doing("look at the placement policy of the group", "compute.resourcePolicies.get")
POLICIES = Doing("list the placement policies", "compute.resourcePolicies.list")
PLACE = Doing("make the placement policy of the group", "compute.resourcePolicies.create")
DISPLACE = Doing("remove the placement policy of the group", "compute.resourcePolicies.delete")
FOLLOW_POLICY = Doing("follow the change of the placement policy", "compute.regionOperations.get")


class PolicyCalls(Calls):
    """The API calls for one project, with those about resource policies."""

    def policy(self, region: str, name: str) -> Json | None:
        """Return the policy; None if it does not exist."""
        with self._refusing(POLICY):
            found = self._unless_absent(
                self._clients.resource_policies.get,
                project=self.project,
                region=region,
                resource_policy=name,
            )
        return plain(found) if found is not None else None

    def policies(self, names: str) -> Sequence[Json]:
        """Return the policies of all regions whose whole name matches the regular expression."""
        found: list[Json] = []
        with self._refusing(POLICIES):
            compute = self._clients.compute
            request = compute.AggregatedListResourcePoliciesRequest(
                project=self.project, filter=f"name eq {names}"
            )
            for page in self._clients.resource_policies.aggregated_list(request=request, **once()).pages:
                answer = plain(page)
                require_complete(answer)
                for scope in answer.get("items", {}).values():
                    found += scope.get("resourcePolicies", ())
        return found

    def make_policy(self, region: str, policy: Json) -> None:
        """Create the policy. Returns once machines can be placed by it."""
        with self._refusing(PLACE):
            made = self._clients.compute.ResourcePolicy.from_json(json.dumps(policy))
            begun = self._clients.resource_policies.insert_unary(
                project=self.project, region=region, resource_policy_resource=made, **once()
            )
        self._await_policy(region, begun, PLACE)

    def remove_policy(self, region: str, name: str) -> None:
        """Delete the policy. Returns once it is gone; an absent one is a success. Raise CONFLICT while a
        machine has it.
        """
        with self._refusing(DISPLACE):
            begun = self._unless_absent(
                self._clients.resource_policies.delete_unary,
                project=self.project,
                region=region,
                resource_policy=name,
            )
        if begun is not None:
            self._await_policy(region, begun, DISPLACE)

    def _await_policy(self, region: str, begun: Any, doing: Doing) -> None:
        ended = follow(plain(begun), lambda name: self._of_region(region, name), is_done, WORK_S)
        refusal = of_operation(ended)
        if refusal is not None and not (doing is DISPLACE and is_absence(refusal)):
            raise self.refusal(refusal, doing)
        if not is_done(ended):
            message = f"Google was asked to {doing.what}, and has not done it yet."
            raise ProviderError(Fault.TRANSIENT, message, code="StillMaking")

    def _of_region(self, region: str, name: str) -> Json | None:
        with self._refusing(FOLLOW_POLICY):
            found = self._unless_absent(
                self._clients.region_operations.get, project=self.project, region=region, operation=name
            )
        return plain(found) if found is not None else None
