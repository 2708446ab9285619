"""Check whether an organisation's policies permit a machine, before it is created.

Constraints: docs.cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.model import Check, Offer, Topic
from orchestrator.model.checks import missing, ok, unknown
from orchestrator.providers import permissions
from orchestrator.providers.gcp import images
from orchestrator.providers.gcp.faults import Refusal
from orchestrator.providers.gcp.os_login import POLICY as OS_LOGIN
from orchestrator.providers.gcp.os_login import is_enforced
from orchestrator.providers.gcp.readiness_calls import Json, Questions

_FORBIDDEN: Mapping[str, str] = {
    "compute.disableGuestAttributesAccess": "it forbids guest attributes, which report host keys",
    "compute.vmExternalIpAccess": "it forbids public addresses; ORCH_GCP_INTERNAL=1 avoids them",
}
_SHIELDED = "compute.requireShieldedVm"
_IMAGES = "compute.trustedImageProjects"
_LOCATIONS = "gcp.resourceLocations"
_CONTINENTS = {f"in:{each}-locations" for each in ("us", "europe", "asia", "africa", "australia", "me")}
_REGION = re.compile(r"in:[a-z]+-[a-z]+[0-9]+-locations")


@dataclass(frozen=True)
class Machine:
    """The facts of the machine that policies may restrict. `image`: the project of its image."""

    region: str
    image: str

    @classmethod
    def of(cls, offer: Offer, image: str | None) -> Machine:
        named = images.path_of(image).split("/") if image else []
        project = named[1] if named[:1] == ["projects"] else images.families(offer)[0].project
        return cls(offer.region, project)


def answers(questions: Questions, environ: Mapping[str, str]) -> dict[str, Json | Refusal]:
    """Return the effective value of every policy that could forbid the machine."""
    names = [name for name in _FORBIDDEN if name != "compute.vmExternalIpAccess" or _is_public(environ)]
    return {name: questions.policy(name) for name in (*names, _SHIELDED, _IMAGES, _LOCATIONS, OS_LOGIN)}


def _is_public(environ: Mapping[str, str]) -> bool:
    return permissions.named("compute.subnetworks.useExternalIp").applies(environ)


def judged(policies: Mapping[str, Json | Refusal], project: str, wanted: Machine | None) -> Iterator[Check]:
    """Return the checks: a single one if nothing is forbidden; none if the policies could not be read, which
    another check reports.
    """
    told = {name: answer for name, answer in policies.items() if not isinstance(answer, Refusal)}
    found = [check for name, answer in told.items() for check in _judged(name, answer, project, wanted)]
    yield from found
    if told and not any(check.state == "missing" for check in found):
        yield ok(Topic.POLICY, "organisation", "does not forbid such a machine")


def _judged(name: str, policy: Json, project: str, wanted: Machine | None) -> Iterator[Check]:
    remedy = f"gcloud resource-manager org-policies describe {name} --project={project} --effective"
    if name in _FORBIDDEN:
        if _forbids(policy):
            yield missing(Topic.POLICY, name, _in_the_way(_FORBIDDEN[name]), remedy)
        return
    if wanted is None:
        return
    if name == _SHIELDED and is_enforced(policy) and not images.boots_securely(wanted.image):
        what = f"it requires Secure Boot, with which the driver in images of {wanted.image} does not load"
        yield missing(Topic.POLICY, name, _in_the_way(what), remedy)
    if name == _IMAGES and not _admits(policy, {f"projects/{wanted.image}"}):
        what = f"it allows no images of {wanted.image}; set `image` in the profile to another"
        yield missing(Topic.POLICY, name, _in_the_way(what), remedy)
    if name == _LOCATIONS:
        yield from _placed(policy, wanted.region, remedy)


def _placed(policy: Json, region: str, remedy: str) -> Iterator[Check]:
    """Check that the policy admits the region. `in:` names a value group, such as a region or a
    continent; the members of other groups are unknown here.
    """
    continent = region.partition("-")[0]
    names = {region, f"in:{region}-locations", f"in:{continent}-locations"}
    if _admits(policy, names):
        return
    groups = [each for each in _allowed(policy) if each.startswith("in:")]
    regions = {each for each in groups if _REGION.fullmatch(each)}
    if set(groups) - _CONTINENTS - regions:
        detail = f"it allows {', '.join(groups)}; whether {region} is among them is not known here"
        yield unknown(Topic.POLICY, _LOCATIONS, detail, remedy)
        return
    listed = ", ".join(_allowed(policy)) or "nothing"
    what = f"it allows machines in {listed}, not in {region}; set `region` in the profile"
    yield missing(Topic.POLICY, _LOCATIONS, _in_the_way(what), remedy)


def _in_the_way(what: str) -> str:
    return f"The organisation's policy prevents this: {what}."


def _allowed(policy: Json) -> list[str]:
    return [str(each) for each in policy.get("listPolicy", {}).get("allowedValues", ())]


def _admits(policy: Json, names: set[str]) -> bool:
    """Return whether a list policy admits one of `names`; explicit denials come first."""
    listed = policy.get("listPolicy", {})
    if listed.get("allValues") == "DENY" or names & set(listed.get("deniedValues", ())):
        return False
    allowed = {each.removeprefix("is:").removeprefix("under:") for each in _allowed(policy)}
    return not allowed or bool(names & allowed)


def _forbids(policy: Json) -> bool:
    """Return whether the policy forbids new machines: a list of allowed values names existing ones only."""
    listed = policy.get("listPolicy", {})
    return is_enforced(policy) or listed.get("allValues") == "DENY" or bool(listed.get("allowedValues"))
