"""The calls of Google's API that orch makes, with plain JSON arguments and results. A refusal raises
ProviderError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Machine, Offer
from orchestrator.providers.gcp.clients import Clients
from orchestrator.providers.gcp.faults import Quota, Refusal, of_operation
from orchestrator.providers.gcp.images import Family, Image, parse_name, path_of
from orchestrator.providers.gcp.names import LABEL_ORIGIN, is_name, is_zone, last
from orchestrator.providers.gcp.operations import follow, is_begun, is_done
from orchestrator.providers.gcp.refusing import Asker, Doing, refused, understood

Json = Mapping[str, Any]

_CALL_S = 60.0
_BEGIN_S = 20.0
_INSERT_S = 300.0
WORK_S = 120.0
"""Seconds that a change of a rule or a policy may take."""
_HARMLESS = frozenset({"NO_RESULTS_ON_PAGE", "DEPRECATED_RESOURCE_USED", "DEPRECATED_TYPE_USED"})

GET = Doing("read the machine", "compute.instances.get")
INSERT = Doing("create the machine", "compute.instances.create")
DELETE = Doing("delete the machine", "compute.instances.delete")
LIST = Doing("list the machines", "compute.instances.list")
ATTRIBUTES = Doing("read the machine's guest attributes", "compute.instances.getGuestAttributes")
FOLLOW = Doing("follow the operation", "compute.zoneOperations.get")
HISTORY = Doing("find out how the machine ended", "compute.zoneOperations.list")
FAMILY = Doing("find the image", "compute.images.getFromFamily")
IMAGE = Doing("find the image", "compute.images.get")
ZONES = Doing("list the zones", "compute.zones.list")
RULE = Doing("read the firewall rule of the group", "compute.firewalls.get")
RULES = Doing("list the firewall rules", "compute.firewalls.list")
CONNECT = Doing("connect the machines", "compute.firewalls.create")
RECONNECT = Doing("change which machines are connected", "compute.firewalls.update")
SEPARATE = Doing("separate the machines", "compute.firewalls.delete")
FOLLOW_CHANGE = Doing("follow the change", "compute.globalOperations.get")


class Calls:
    """The API calls for one project. Each has a time limit, and none is repeated here."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    @property
    def project(self) -> str:
        with self._refusing(GET):
            return self._clients.project

    @property
    def principal(self) -> str:
        """Return the account's address; "" if unknown."""
        try:
            return self._clients.account
        except Exception as error:
            if not isinstance(error, ProviderError) and understood(error) is None:
                raise
            return ""

    # ------------------------------------------------------------ instances

    def instance(self, zone: str, name: str) -> Json | None:
        """Return the instance; None if it does not exist."""
        with self._refusing(GET):
            found = self._unless_absent(
                self._clients.instances.get, project=self.project, zone=zone, instance=name
            )
        return plain(found) if found is not None else None

    def instance_of(self, machine: Machine) -> Json | None:
        """Return the instance of the machine; None if it is gone. A later one with its name is another."""
        require_named(machine)
        found = self.instance(machine.zone, machine.id)
        number = str(machine.detail.get("number", ""))
        if found is None or number not in ("", str(found.get("id", ""))):
            return None
        return found

    def insert(self, zone: str, body: Json, request_id: str) -> Json:
        """Start the insert operation, or return the existing one: Google carries out each request id once."""
        with self._refusing(INSERT):
            compute = self._clients.compute
            request = compute.InsertInstanceRequest(
                project=self.project,
                zone=zone,
                request_id=request_id,
                instance_resource=compute.Instance.from_json(json.dumps(body)),
            )
            return plain(self._clients.instances.insert_unary(request=request, **once()))

    def inserted(self, zone: str, operation: Json) -> Json:
        """Wait for the operation; it is returned unfinished if Google takes longer than some minutes."""
        return follow(operation, lambda name: self._operation(zone, name), is_done, _INSERT_S)

    def delete(self, zone: str, name: str) -> None:
        """Start the deletion and return. An absent instance is a success."""
        with self._refusing(DELETE):
            begun = self._unless_absent(
                self._clients.instances.delete_unary, project=self.project, zone=zone, instance=name
            )
        if begun is None:
            return
        ended = follow(plain(begun), lambda name: self._operation(zone, name), is_begun, _BEGIN_S)
        refusal = of_operation(ended)
        if refusal is not None and not is_absence(refusal):
            raise self.refusal(refusal, DELETE)

    def instances(self, expression: str) -> Iterator[tuple[Json, datetime | None]]:
        """Yield every instance in every zone that matches the filter, with the time of the answer by Google's
        clock.

        Raises ProviderError(TRANSIENT) if a zone did not answer, because machines may exist there.
        """
        with self._refusing(LIST):
            compute = self._clients.compute
            request = compute.AggregatedListInstancesRequest(project=self.project, filter=expression)
            for page in self._clients.instances.aggregated_list(request=request, **once()).pages:
                answer = plain(page)
                require_complete(answer)
                now = self._clients.told_at
                for scope in answer.get("items", {}).values():
                    yield from ((instance, now) for instance in scope.get("instances", ()))

    def done_to(self, zone: str, number: str) -> Sequence[Json]:
        """Return the operations on the instance with this numeric id that Google still lists, including its
        creation.
        """
        with self._refusing(HISTORY):
            compute = self._clients.compute
            request = compute.ListZoneOperationsRequest(
                project=self.project, zone=zone, filter=f"targetId={number}"
            )
            return [plain(found) for found in self._clients.operations.list(request=request, **once())]

    def guest_attributes(self, zone: str, name: str, path: str) -> Sequence[Json]:
        """Return the guest attributes below `path`; empty if there are none, or if the machine is gone."""
        with self._refusing(ATTRIBUTES):
            compute = self._clients.compute
            request = compute.GetGuestAttributesInstanceRequest(
                project=self.project, zone=zone, instance=name, query_path=path
            )
            found = self._unless_absent(self._clients.instances.get_guest_attributes, request=request)
        if found is None:
            return ()
        items: Sequence[Json] = plain(found).get("queryValue", {}).get("items", ())
        return items

    # ------------------------------------------------------------ firewall rules

    def firewall(self, name: str) -> Json | None:
        """Return the rule; None if it does not exist."""
        with self._refusing(RULE):
            found = self._unless_absent(self._clients.firewalls.get, project=self.project, firewall=name)
        return plain(found) if found is not None else None

    def firewalls(self, names: str) -> Sequence[Json]:
        """Return the rules whose whole name matches the regular expression."""
        with self._refusing(RULES):
            compute = self._clients.compute
            request = compute.ListFirewallsRequest(project=self.project, filter=f"name eq {names}")
            return [plain(rule) for rule in self._clients.firewalls.list(request=request, **once())]

    def make_firewall(self, rule: Json) -> None:
        """Create the rule. Returns once it is in force."""
        with self._refusing(CONNECT):
            made = self._clients.compute.Firewall.from_json(json.dumps(rule))
            begun = self._clients.firewalls.insert_unary(
                project=self.project, firewall_resource=made, **once()
            )
        self._await_rule(begun, CONNECT)

    def change_firewall(self, name: str, changed: Json) -> None:
        """Replace these fields of the rule. Returns once the change is in force."""
        with self._refusing(RECONNECT):
            fields = self._clients.compute.Firewall.from_json(json.dumps(changed))
            begun = self._clients.firewalls.patch_unary(
                project=self.project, firewall=name, firewall_resource=fields, **once()
            )
        self._await_rule(begun, RECONNECT)

    def remove_firewall(self, name: str) -> None:
        """Delete the rule. Returns once it is gone; an absent one is a success."""
        with self._refusing(SEPARATE):
            begun = self._unless_absent(
                self._clients.firewalls.delete_unary, project=self.project, firewall=name
            )
        if begun is not None:
            self._await_rule(begun, SEPARATE)

    def _await_rule(self, begun: Any, doing: Doing) -> None:
        ended = follow(plain(begun), self._project_operation, is_done, WORK_S)
        refusal = of_operation(ended)
        if refusal is not None and not (doing is SEPARATE and is_absence(refusal)):
            raise self.refusal(refusal, doing)
        if not is_done(ended):
            message = f"Google accepted the request to {doing.what}, but has not finished yet."
            raise ProviderError(Fault.TRANSIENT, message, code="StillMaking")

    def _project_operation(self, name: str) -> Json | None:
        with self._refusing(FOLLOW_CHANGE):
            found = self._unless_absent(
                self._clients.project_operations.get, project=self.project, operation=name
            )
        return plain(found) if found is not None else None

    # ------------------------------------------------------------ what the cloud has

    def newest(self, family: Family) -> Image | None:
        with self._refusing(FAMILY):
            found = self._unless_absent(
                self._clients.images.get_from_family, project=family.project, family=family.name
            )
        return _image(plain(found)) if found is not None else None

    def image(self, reference: str) -> Image:
        """Return the image for [PROJECT/]NAME of an image or a family, or a path
        …projects/P/global/images/[family/]NAME.
        """
        named = parse_name(reference, self.project)
        found = self.newest(named.family) if named.maybe_family else None
        if found is None and named.maybe_image:
            with self._refusing(IMAGE):
                got = self._unless_absent(
                    self._clients.images.get, project=named.family.project, image=named.family.name
                )
            found = _image(plain(got)) if got is not None else None
        if found is None:
            raise ProviderError(Fault.INVALID, f"There is no image {reference}.", code="Image")
        return found

    def zones(self) -> dict[str, list[str]]:
        """Return the zones that are up, by region."""
        found: dict[str, list[str]] = {}
        with self._refusing(ZONES):
            compute = self._clients.compute
            request = compute.ListZonesRequest(project=self.project)
            for zone in self._clients.zones.list(request=request, **once()):
                if zone.status != "DOWN":
                    found.setdefault(last(zone.region), []).append(zone.name)
        return found

    def sells(self, offer: Offer, attached: str = "") -> bool:
        """Return whether the offer's zone has its machine type, and the GPU that is `attached`: a zone may
        have n1 but no T4. True if that is not known.
        """
        clients, place = self._clients, {"project": self.project, "zone": offer.zone}
        try:
            there = self._unless_absent(clients.machine_types.get, **place, machine_type=offer.instance_type)
            if there and attached:
                there = self._unless_absent(clients.accelerator_types.get, **place, accelerator_type=attached)
            return bool(there)
        except Exception as error:
            if understood(error) is None:
                raise
            return True

    def used(self, quota: Quota) -> float | None:
        """Return how much of a region's quota is used; None if unknown."""
        if not quota.region:
            return None
        try:
            region = self._clients.regions.get(project=self.project, region=quota.region, **once())
        except Exception as error:
            if understood(error) is None:
                raise
            return None
        return next((float(q.usage) for q in region.quotas if q.metric == quota.metric), None)

    # ------------------------------------------------------------ inside

    def refusal(self, refusal: Refusal, doing: Doing) -> ProviderError:
        return refused(refusal, doing, self._asker(), self.used)

    def _operation(self, zone: str, name: str) -> Json | None:
        with self._refusing(FOLLOW):
            found = self._unless_absent(
                self._clients.operations.get, project=self.project, zone=zone, operation=name
            )
        return plain(found) if found is not None else None

    def _unless_absent(self, call: Any, **arguments: Any) -> Any:
        """Return the answer; None if the resource does not exist."""
        from google.api_core.exceptions import NotFound

        try:
            return call(**arguments, **once())
        except NotFound:
            return None

    @contextmanager
    def _refusing(self, doing: Doing) -> Iterator[None]:
        try:
            yield
        except ProviderError:
            raise
        except Exception as error:
            refusal = understood(error)
            if refusal is None:
                raise
            raise self.refusal(refusal, doing) from error

    def _asker(self) -> Asker:
        try:
            return Asker(self._clients.identity, self._clients.project)
        except Exception as error:
            if not isinstance(error, ProviderError) and understood(error) is None:
                raise
            return Asker("nobody", "which none is named for")


def require_named(machine: Machine) -> None:
    """Raise INVALID unless it can be a machine of this cloud."""
    if not is_name(machine.id) or not is_zone(machine.zone):
        raise ProviderError(
            Fault.INVALID, f"{machine.id[:80]!r} in {machine.zone!r} is not a Google Cloud machine."
        )


def once() -> dict[str, Any]:
    """Make one attempt with a time limit; only RetryingProvider repeats calls."""
    return {"retry": None, "timeout": _CALL_S}


def plain(message: Any) -> dict[str, Any]:
    """Return a message of the library as the JSON that was received."""
    text = type(message).to_json(
        message, use_integers_for_enums=False, always_print_fields_with_no_presence=False
    )
    value: dict[str, Any] = json.loads(text)
    return value


def _image(found: Json) -> Image:
    """Return the image. Raises INVALID for Windows, which runs no startup script of orch and has no shell."""
    if any(feature.get("type") == "WINDOWS" for feature in found.get("guestOsFeatures", ())):
        raise ProviderError(Fault.INVALID, f"The image {found['name']} runs Windows.", code="Image")
    made_of = str(found.get("labels", {}).get(LABEL_ORIGIN, ""))
    return Image(path_of(str(found["selfLink"])), int(found.get("diskSizeGb", 10)), made_of)


def is_absence(refusal: Refusal) -> bool:
    return refusal.code.replace("_", "").lower() in ("resourcenotfound", "notfound")


def require_complete(answer: Json) -> None:
    """Raise ProviderError(TRANSIENT) if a zone of an aggregated list did not answer."""
    warnings = [(name, scope.get("warning")) for name, scope in answer.get("items", {}).items()]
    warnings.append(("", answer.get("warning")))
    unseen = [
        name or str(warning.get("message", ""))
        for name, warning in warnings
        if warning and warning.get("code") not in _HARMLESS
    ]
    unseen += [last(str(link)) for link in answer.get("unreachables", ())]
    if unseen:
        raise ProviderError(
            Fault.TRANSIENT,
            f"Google did not list the machines in {', '.join(unseen)}.",
            code="Unreachable",
        )
