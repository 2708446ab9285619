"""One call of the API, and the answers that all lists have in common."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

from tests.clouds.gcp import operations
from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.faults import Fault
from tests.clouds.gcp.lifecycle import Lifecycle
from tests.clouds.gcp.listing import page
from tests.clouds.gcp.world import World


@dataclass(frozen=True)
class Call:
    """One call: method id, path values, query, body, and the fault that strikes after it was accepted."""

    world: World
    life: Lifecycle
    method: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Json
    fault: Fault | None = None

    @property
    def zone(self) -> str:
        zone = self.path["zone"]
        if zone not in self.world.facts.zones:
            message = f"Invalid value for field 'zone': '{zone}'. Unknown zone."
            raise ApiError(400, "invalid", message)
        return zone

    @property
    def region(self) -> str:
        region = self.path["region"]
        if region not in self.world.facts.regions:
            message = f"Invalid value for field 'region': '{region}'. Unknown region."
            raise ApiError(400, "invalid", message)
        return region

    @property
    def request(self) -> tuple[str, str]:
        return self.method, self.query.get("requestId", "")

    def repeated(self) -> Json | None:
        return operations.repeated(self.world, *self.request)


def listed(call: Call, kind: str, where: str, items: list[Json]) -> Json:
    with call.world.changed:
        found, token = page([copy.deepcopy(item) for item in items], call.query)
    answer: Json = {
        "kind": f"compute#{kind}List",
        "id": call.world.path(where),
        "selfLink": call.world.url(where),
    }
    if found:
        answer["items"] = found
    if token:
        answer["nextPageToken"] = token
    return answer


def aggregated_by_zone(call: Call, kind: str, noun: str, zones: Mapping[str, list[Json]]) -> Json:
    """All zones at once: those with nothing carry a warning in place of items."""
    return _aggregated(call, kind, noun, "zone", zones)


def aggregated_by_region(call: Call, kind: str, noun: str, regions: Mapping[str, list[Json]]) -> Json:
    """All regions at once, likewise."""
    return _aggregated(call, kind, noun, "region", regions)


def _aggregated(call: Call, kind: str, noun: str, scope: str, places: Mapping[str, list[Json]]) -> Json:
    with call.world.changed:
        everything = [copy.deepcopy(item) for items in places.values() for item in items]
    found, token = page(everything, call.query)
    scopes: Json = {}
    for place in places:
        mine = [item for item in found if item[scope].rpartition("/")[2] == place]
        scopes[f"{scope}s/{place}"] = {noun: mine} if mine else _nothing(f"{scope}s/{place}")
    answer: Json = {
        "kind": f"compute#{kind}AggregatedList",
        "id": call.world.path("aggregated", noun),
        "items": scopes,
        "selfLink": call.world.url("aggregated", noun),
    }
    if token:
        answer["nextPageToken"] = token
    return answer


def _nothing(scope: str) -> Json:
    message = f"There are no results for scope '{scope}' on this page."
    data = [{"key": "scope", "value": scope}]
    return {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": message, "data": data}}


def refuse_unknown_project(call: Call) -> None:
    """Images of other projects are public; everything else of theirs is not ours to see."""
    project = call.path.get("project")
    if project in (None, call.world.settings.project, str(call.world.settings.number)):
        return
    if call.method.startswith("compute.images."):
        return
    message = f"The resource 'projects/{project}' was not found"
    raise ApiError(404, "notFound", message)
