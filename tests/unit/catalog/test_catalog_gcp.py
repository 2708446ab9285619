"""What Google answers becomes a catalog: by its own shapes, over HTTP, page by page, and refusals."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from orchestrator import catalog
from orchestrator.catalog.google_prices import Part, parse_skus
from orchestrator.catalog.keeping import SHIPPED
from orchestrator.catalog.tables import read
from orchestrator.errors import Fault, ProviderError
from orchestrator.model import AcceleratorNeed, Bound, Need

GIB = 1 << 30
WHERE = "us-central1"
SHIPPED_GCP = read(SHIPPED, "gcp")


def sku(description: str, nanos: int, *, units: str = "0", usage: str = "OnDemand", unit: str = "h") -> Any:
    """As Cloud Billing answers."""
    group = "GPU" if "GPU" in description else "RAM" if "Ram" in description else "CPU"
    family = "Storage" if "Storage" in description else "Compute"
    rates = [{"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": units, "nanos": nanos}}]
    expression = {"usageUnit": unit, "displayQuantity": 1, "tieredRates": rates, "baseUnit": "s"}
    return {
        "name": "services/6F81-5844-456A/skus/0000-0000-0000",
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": family,
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": [WHERE, "us-east1"],
        "pricingInfo": [{"summary": "", "pricingExpression": expression, "currencyConversionRate": 1}],
        "serviceProviderName": "Google",
    }


N1 = "N1 Predefined Instance"
T4 = "Nvidia Tesla T4 GPU"
SKUS = [
    sku("N1 Predefined Instance Core running in Americas", 31611000),
    sku("N1 Predefined Instance Ram running in Americas", 4237000, unit="GiBy.h"),
    sku("Spot Preemptible N1 Predefined Instance Core running in Americas", 6655000, usage="Preemptible"),
    sku(
        "Spot Preemptible N1 Predefined Instance Ram running in Americas",
        892000,
        usage="Preemptible",
        unit="GiBy.h",
    ),
    sku("N1 Predefined Instance Core running in Americas", 999999999, usage="Commit1Yr"),
    sku("Custom Instance Core running in Americas", 33174000),
    sku("N1 Sole Tenancy Instance Core running in Americas", 31611000),
    sku("G2 Instance Core running in Americas", 24988000),
    sku("G2 Instance Ram running in Americas", 2927000, unit="GiBy.h"),
    sku("G2 Custom Instance Core running in Americas", 999999999),
    sku("Nvidia L4 GPU running in Americas", 560040000),
    sku("Nvidia Tesla T4 GPU running in Americas", 350000000),
    sku(
        "Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas",
        110000000,
        usage="Preemptible",
    ),
    sku("Commitment v1: Nvidia Tesla T4 GPU running in Americas for 1 Year", 220000000, usage="Commit1Yr"),
    sku("N2D AMD Instance Core running in Americas", 27502000),
    sku("N2D AMD Instance Ram running in Americas", 3686000, unit="GiBy.h"),
    sku("Compute optimized Core running in Americas", 33982000),
    sku("A3Plus Instance Core running in Americas", 29330000),
    sku("Nvidia H100 80GB Mega GPU running in Americas", 250000000, units="9"),
    sku("SSD backed Local Storage", 80000000, unit="GiBy.mo"),
    sku("E2 Instance Core running in Americas", 21811590),
    sku("E2 Instance Ram running in Americas", 2923530, unit="GiBy.h"),
    sku("Network Internet Egress from Americas to Americas", 120000000, unit="GiBy"),
]


def test_parts_by_what_family_and_region() -> None:
    prices = parse_skus(SKUS)
    assert {(part.what, part.family, part.spot) for part in prices} == {
        ("core", "n1", False),
        ("ram", "n1", False),
        ("core", "n1", True),
        ("ram", "n1", True),
        ("core", "g2", False),
        ("ram", "g2", False),
        ("gpu", "L4", False),
        ("gpu", "T4", False),
        ("gpu", "T4", True),
        ("core", "n2d", False),
        ("ram", "n2d", False),
        ("core", "c2", False),
        ("core", "a3plus", False),
        ("gpu", "H100-MEGA", False),
        ("disk", "", False),
        ("core", "e2", False),
        ("ram", "e2", False),
    }
    assert prices[Part("gpu", "H100-MEGA", WHERE, False)] == 9.25
    assert prices[Part("core", "n1", "us-east1", False)] == pytest.approx(0.031611)
    assert prices[Part("disk", "", WHERE, False)] == pytest.approx(0.08 / 730)


# ---------------------------------------------------------------- over HTTP


def machine(zone: str, name: str, cpus: int, memory: int, **more: Any) -> dict[str, Any]:
    url = f"https://www.googleapis.com/compute/v1/projects/demo/zones/{zone}"
    return {
        "kind": "compute#machineType",
        "name": name,
        "guestCpus": cpus,
        "memoryMb": memory,
        "zone": zone,
        "selfLink": f"{url}/machineTypes/{name}",
        "isSharedCpu": False,
        **more,
    }


L4 = {"accelerators": [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 1}]}
ZONES = (f"{WHERE}-a", f"{WHERE}-b", "us-east1-c")
MACHINES = {
    zone: [
        machine(zone, "n1-standard-4", 4, 15360),
        machine(zone, "e2-micro", 2, 1024, isSharedCpu=True),
        machine(zone, "m9-mystery-2", 2, 8192),
        *(
            [machine(zone, "g2-standard-4", 4, 16384, architecture="X86_64", **L4)]
            if zone != ZONES[1]
            else []
        ),
    ]
    for zone in ZONES
}
ACCELERATORS = {
    ZONES[0]: [{"name": "nvidia-tesla-t4"}, {"name": "nvidia-tesla-t4-vws"}, {"name": "nvidia-l4"}],
    ZONES[2]: [{"name": "nvidia-tesla-t4"}],
}


class Google(ThreadingHTTPServer):
    """Answers what Google would: a page for each zone, and two of SKUs."""

    refusal: int = 0

    def answer(self, path: str, query: dict[str, list[str]]) -> dict[str, Any]:
        page = int(query.get("pageToken", ["0"])[0])
        noun = path.rpartition("/")[2]
        if noun == "skus":
            half = len(SKUS) // 2
            return {"skus": SKUS[half:]} if page else {"skus": SKUS[:half], "nextPageToken": "1"}
        found = {"machineTypes": MACHINES, "acceleratorTypes": ACCELERATORS}[noun]
        nothing: dict[str, Any] = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "No results."}}
        items = {f"zones/{zone}": nothing for zone in ZONES}
        zone = ZONES[page]
        if zone in found:
            items[f"zones/{zone}"] = {noun: found[zone]}
        more = {"nextPageToken": str(page + 1)} if page + 1 < len(ZONES) else {}
        return {"kind": f"compute#{noun}AggregatedList", "items": items, **more}


class Handler(BaseHTTPRequestHandler):
    server: Google

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        wanted = ("/compute/v1/projects/demo/aggregated/", "/v1/services/6F81-5844-456A/skus")
        status = self.server.refusal or (200 if parts.path.startswith(wanted) else 404)
        body = self.server.answer(parts.path, parse_qs(parts.query)) if status == 200 else {"error": {}}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Google]:
    server = Google(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", f"{url}/compute/v1/")
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING", f"{url}/")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "demo")
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path / "cache"))
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("google")
def test_a_refresh_is_what_plans_are_made_of() -> None:
    renewed = catalog.refresh("gcp")
    assert (renewed.regions, renewed.types, renewed.unpriced) == ((WHERE, "us-east1"), 4, ("m9-mystery-2",))
    held = catalog.load("gcp")
    assert held.facts.date == renewed.date and {kind.instance_type for kind in held.kinds} == set(held.sales)
    (l4, *_) = catalog.offers(Need("gcp", accelerator=AcceleratorNeed(Bound(1), "L4"), region=WHERE))
    assert l4.price == pytest.approx(4 * 0.024988 + 16 * 0.002927 + 0.56004, abs=1e-6)
    assert (l4.zone, l4.vendor, l4.network, l4.gpu_memory // GIB) == (f"{WHERE}-a", "nvidia", 10.0, 22)
    need = Need("gcp", accelerator=AcceleratorNeed(Bound(1), "T4"), spot=True, cpus=Bound(4))
    t4 = catalog.offers(need)
    assert [offer.zone for offer in t4] == [f"{WHERE}-a", "us-east1-c"]
    assert t4[0].price == pytest.approx(4 * 0.006655 + 15 * 0.000892 + 0.11, abs=1e-6)
    assert (t4[0].attach, t4[0].gpu_memory) == ("nvidia-tesla-t4", 16 * GIB)
    shipped = next(sale for sale in SHIPPED_GCP.sales["g2-standard-4"] if sale.region == WHERE)
    assert l4.price == pytest.approx(shipped.price, rel=0.001), "the parts add up to what others recorded"
    micro = catalog.offers(Need("gcp", memory=Bound(GIB), zone=f"{WHERE}-b"))
    assert [offer.price for offer in micro] == [pytest.approx(0.25 * 0.02181159 + 0.00292353, abs=1e-6)]


@pytest.mark.usefixtures("google")
def test_one_region_alone_leaves_the_others_as_they_were() -> None:
    assert catalog.refresh("gcp", region=WHERE).regions == (WHERE,)
    held = catalog.load("gcp")
    assert len({sale.region for sales in held.sales.values() for sale in sales}) == 43
    assert {sale.region for sale in held.sales["m9-mystery-2"]} == {WHERE}
    assert math.isnan(held.sales["m9-mystery-2"][0].price)
    assert not [sale for sale in held.sales["c2-standard-4"] if sale.region == WHERE]
    assert held.facts.of(WHERE) > held.facts.of("europe-west4") == held.facts.date


@pytest.mark.parametrize(
    ("status", "fault"), [(403, Fault.AUTH), (401, Fault.AUTH), (503, Fault.TRANSIENT), (404, Fault.INVALID)]
)
def test_a_refusal_changes_nothing(google: Google, status: int, fault: Fault, tmp_path: Path) -> None:
    google.refusal = status
    before = catalog.load("gcp").facts
    with pytest.raises(ProviderError, match="Google did not say what it sells") as refused:
        catalog.refresh("gcp")
    assert (refused.value.fault, refused.value.exists) == (fault, "The catalog is as it was.")
    assert catalog.load("gcp").facts == before and not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("google")
def test_credentials_are_not_sent_unencrypted_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING", "http://192.0.2.1/v1/")
    with pytest.raises(ProviderError, match="must begin with https"):
        catalog.refresh("gcp")
