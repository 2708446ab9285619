"""Check whether a region is ready for a machine: zones, network, image, quotas. Reads only."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Check, Offer, Topic
from orchestrator.model.checks import missing, ok, unknown, warning
from orchestrator.providers.gcp import images, request
from orchestrator.providers.gcp.calls import Calls
from orchestrator.providers.gcp.faults import Refusal
from orchestrator.providers.gcp.names import NETWORK_TAG, last
from orchestrator.providers.gcp.readiness_calls import Json, Questions
from orchestrator.providers.gcp.zones import expanded

_GIB = 1 << 30
_TUNNELS = "35.235.240.0/20"
"""The addresses from which connections through IAP come."""


@dataclass(frozen=True)
class Site:
    """Where a machine would be created. `offers`: those of one type in one region, by zone; () without an
    offer.
    """

    questions: Questions
    setting: request.Setting
    region: str
    offers: tuple[Offer, ...]
    disk: int
    image: str | None = None
    tunnel: bool = False
    """Whether machines are reached through IAP."""


# ---------------------------------------------------------------- region and zones


def region(questions: Questions, wanted: str, offers: Sequence[Offer]) -> tuple[Check, tuple[Offer, ...]]:
    """Check that the region exists, and return the offers by zone."""
    calls = Calls(questions)
    try:
        known = calls.zones()
    except ProviderError as error:
        placed = tuple(offer for offer in offers if offer.zone)
        return unknown(Topic.REGION, wanted, f"its zones could not be read: {error.code}"), placed
    if wanted not in known:
        near = difflib.get_close_matches(wanted, sorted(known), 1, 0)
        there = [name for name in sorted(known) if name[:2] == wanted[:2]] or sorted(known)
        detail = f"There is no region {wanted}. There are {', '.join(there)}."
        return missing(
            Topic.REGION, wanted, detail, f"--region {near[0]}    # or the profile's" if near else None
        ), ()
    if not offers:
        detail = f"The catalog has no offer in {wanted} that fits."
        return missing(Topic.REGION, wanted, detail, f"orch catalog refresh gcp --region {wanted}"), ()
    placed = tuple(offer for offer in expanded(offers, known) if offer.zone in known[wanted])
    sold = tuple(offer for offer in placed if calls.sells(offer, request.attachment(offer)))
    if not sold:
        kind = offers[0].instance_type
        detail = f"No available zone has {kind}; available are {', '.join(known[wanted])}."
        return missing(Topic.REGION, wanted, detail, f"orch catalog refresh gcp --region {wanted}"), ()
    zones = ", ".join(offer.zone for offer in sold)
    return ok(Topic.REGION, wanted, f"{sold[0].instance_type} is sold in {zones}"), sold


# ---------------------------------------------------------------- network


def network(site: Site) -> Iterator[Check]:
    """Check the network or subnetwork of the machine, and whether it admits ssh."""
    given = site.setting.subnetwork
    name = given or "default"
    found = _subnetwork(site, given) if given else site.questions.network("default")
    if isinstance(found, Refusal):
        yield _unplugged(site, name, found)
        return
    links = [str(link) for link in found.get("subnetworks", ())]
    if not given and links and not any(f"/regions/{site.region}/" in link for link in links):
        remedy = (
            f"gcloud compute networks subnets create orch --network=default --region={site.region} "
            f"--range=10.200.0.0/20 --project={site.setting.project}"
        )
        yield missing(Topic.NETWORK, name, f"The network has no subnetwork in {site.region}.", remedy)
        return
    yield ok(Topic.NETWORK, name, "there")
    yield _firewall(site, str(found.get("network", "")) if given else "default")


def _subnetwork(site: Site, given: str) -> Json | Refusal:
    """Return a subnetwork by its name in this region and project, or by its path, which may be in another
    project.
    """
    parts = given.split("/")
    if len(parts) >= 6 and parts[-6] == "projects":
        return site.questions.subnetwork(parts[-5], parts[-3], parts[-1])
    return site.questions.subnetwork(site.setting.project, site.region, parts[-1])


def _unplugged(site: Site, name: str, refusal: Refusal) -> Check:
    if refusal.status != 404:
        return unknown(Topic.NETWORK, name, f"not seen: {refusal.words}")
    project = site.setting.project
    if site.setting.subnetwork:
        remedy = f"gcloud compute networks subnets list --project={project}    # then: ORCH_GCP_SUBNETWORK=…"
        return missing(Topic.NETWORK, name, f"There is no subnetwork {name} in {site.region}.", remedy)
    remedy = (
        f"gcloud compute networks create default --project={project}    # or: export ORCH_GCP_SUBNETWORK=…"
    )
    return missing(Topic.NETWORK, name, f"The project {project} has no network called default.", remedy)


def _firewall(site: Site, link: str) -> Check:
    """Check the firewall rules; those of a shared network are not visible, because another project
    owns them.
    """
    owner = link.partition("projects/")[2].partition("/")[0] or site.setting.project
    if owner != site.setting.project:
        detail = f"the network and its rules belong to the project {owner}: they must admit ssh"
        return unknown(Topic.NETWORK, "firewall", detail)
    return _ssh(site, last(link))


def _ssh(site: Site, network_name: str) -> Check:
    """Check whether the first matching rule admits ssh to machines with orch's tag."""
    rules = site.questions.firewalls()
    if isinstance(rules, Refusal):
        return unknown(Topic.NETWORK, "firewall", f"not seen: {rules.words}")
    fitting = sorted((rule for rule in rules if _fits(rule, network_name)), key=_precedence)
    sources: list[str] = []
    for rule in fitting:
        if rule.get("denied") and "0.0.0.0/0" in _sources(rule):
            break
        sources += _sources(rule) if rule.get("allowed") else []
    if site.tunnel and _TUNNELS in sources:
        return ok(Topic.NETWORK, "firewall", f"admits ssh from {_TUNNELS}, Google's tunnels")
    if not set(sources) - {_TUNNELS} or (site.tunnel and "0.0.0.0/0" not in sources):
        return _shut(site, network_name, tunnels=bool(sources))
    if "0.0.0.0/0" in sources:
        detail = f"The firewall of {network_name} admits ssh from anywhere."
        return warning(Topic.NETWORK, "firewall", detail, "orch setup gcp")
    where = ", ".join(dict.fromkeys(sources))
    return ok(Topic.NETWORK, "firewall", f"admits ssh from {where} only; your address must be among them")


def _shut(site: Site, network_name: str, *, tunnels: bool) -> Check:
    but = " except through IAP (ORCH_GCP_INTERNAL=iap)" if tunnels and not site.tunnel else ""
    source = _TUNNELS if site.tunnel else "YOUR.ADDRESS/32"
    setup = "orch setup gcp    # or: " if network_name == "default" and not site.tunnel else ""
    remedy = (
        f"{setup}gcloud compute firewall-rules create orch-ssh --project={site.setting.project} "
        f"--network={network_name} --allow=tcp:22 --target-tags={NETWORK_TAG} --source-ranges={source}"
    )
    detail = f"No rule admits ssh (tcp:22) to machines with the tag {NETWORK_TAG}{but}."
    return missing(Topic.NETWORK, "firewall", detail, remedy)


def _fits(rule: Json, network_name: str) -> bool:
    """Return whether a rule applies to this network, to incoming connections, to orch's machines and to
    ssh.
    """
    tags = rule.get("targetTags", ())
    return (
        last(str(rule.get("network", ""))) == network_name
        and rule.get("direction", "INGRESS") == "INGRESS"
        and not rule.get("disabled", False)
        and not rule.get("targetServiceAccounts")
        and (not tags or NETWORK_TAG in tags)
        and any(_is_ssh(each) for each in (*rule.get("allowed", ()), *rule.get("denied", ())))
    )


def _is_ssh(part: Json) -> bool:
    if part.get("IPProtocol", part.get("I_p_protocol")) not in ("tcp", "all", "6"):
        return False
    ports = [str(port).partition("-") for port in part.get("ports", ())]
    return not ports or any(int(low) <= 22 <= int(high or low) for low, _, high in ports)


def _precedence(rule: Json) -> tuple[int, bool]:
    """Sort key of rules: lower priority numbers first; of equal ones, denials first."""
    return int(rule.get("priority", 1000)), not rule.get("denied")


def _sources(rule: Json) -> list[str]:
    named = [f"the tag {tag}" for tag in rule.get("sourceTags", ())]
    ranges = [str(each) for each in rule.get("sourceRanges", ())]
    return ranges + named or ["0.0.0.0/0"]


# ---------------------------------------------------------------- image


def image(site: Site) -> Check:
    """Check the image of the offer, and whether the disk is large enough for it."""
    offer = site.offers[0]
    candidates, calls = images.families(offer), Calls(site.questions)
    name = site.image or candidates[0].name
    try:
        found = calls.image(site.image) if site.image else images.resolve(candidates, calls.newest)
    except ProviderError as error:
        if error.fault is Fault.INVALID:
            return missing(Topic.IMAGE, name, error.message, error.next_command)
        return unknown(Topic.IMAGE, name, f"not seen: {error.code}")
    if site.disk < found.disk_gib * _GIB:
        detail = f"{last(found.path)} needs {found.disk_gib} GiB; resources.disk is {site.disk // _GIB} GiB."
        return missing(
            Topic.IMAGE, name, detail, f"--set resources.disk={found.disk_gib}GiB    # or the profile's"
        )
    return ok(Topic.IMAGE, name, last(found.path))


# ---------------------------------------------------------------- quotas


def quotas(site: Site, project: Json | Refusal) -> Iterator[Check]:
    """Check every quota that applies to the machine, of its region and of the project."""
    offer = site.offers[0]
    regional = site.questions.region(site.region)
    if isinstance(regional, Refusal):
        yield unknown(Topic.QUOTA, site.region, f"not seen: {regional.words}")
    else:
        yield from _judged(site, _taken(site, _metrics(regional)), _metrics(regional), site.region)
    if offer.accelerator and isinstance(project, Refusal):
        yield unknown(Topic.QUOTA, "GPUS_ALL_REGIONS", f"not seen: {project.words}")
    elif not isinstance(project, Refusal):
        taken: dict[str, float] = {"CPUS_ALL_REGIONS": offer.cpus}
        if offer.accelerator:
            taken["GPUS_ALL_REGIONS"] = offer.accelerator_count
        yield from _judged(site, taken, _metrics(project), "all regions together")


def _metrics(answer: Json) -> Mapping[str, Json]:
    return {str(each["metric"]): each for each in answer.get("quotas", ())}


def _taken(site: Site, known: Mapping[str, Json]) -> dict[str, float]:
    """Return how much of each metric, named as in the console, the machine uses."""
    offer = site.offers[0]
    series = offer.instance_type.partition("-")[0].upper()
    cpus = [f"{series}_CPUS", "CPUS"]
    if offer.spot:  # Spot machines have a separate quota, if it is listed.
        cpus = [name for name in ("PREEMPTIBLE_CPUS",) if known.get(name, {}).get("limit")] or cpus
    taken: dict[str, float] = {next((name for name in cpus if name in known), "CPUS"): offer.cpus}
    taken["INSTANCES"] = 1
    if offer.accelerator:
        start = "PREEMPTIBLE_" if offer.spot else ""
        taken[f"{start}NVIDIA_{offer.accelerator.replace('-', '_')}_GPUS"] = offer.accelerator_count
    if request.disk_type(offer).startswith("pd-"):
        taken["SSD_TOTAL_GB"] = -(-site.disk // _GIB)
    if not site.setting.internal:
        taken["IN_USE_ADDRESSES"] = 1
    return taken


def _judged(site: Site, taken: Mapping[str, float], known: Mapping[str, Json], where: str) -> Iterator[Check]:
    page = f"https://console.cloud.google.com/iam-admin/quotas?project={site.setting.project}"
    for metric, wanted in taken.items():
        if metric not in known:
            if metric.endswith("_GPUS"):
                yield unknown(Topic.QUOTA, metric, f"{where}: Compute Engine does not report it", page)
            continue
        limit, used = float(known[metric].get("limit", 0)), float(known[metric].get("usage", 0))
        told = f"{where}: {used:g} of {limit:g} in use; {site.offers[0].instance_type} needs {wanted:g}"
        if used + wanted <= limit:
            yield ok(Topic.QUOTA, metric, told)
        else:
            yield missing(Topic.QUOTA, metric, told, f"ask for {used + wanted:g} at {page}")
