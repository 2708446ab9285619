"""The shipped catalog against many needs: by a second, slow way to the same answer, and by known facts."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator import catalog
from orchestrator.catalog.keeping import SHIPPED, keep
from orchestrator.catalog.rows import Attachable, Catalog, Sale
from orchestrator.catalog.selling import missing, serving
from orchestrator.catalog.tables import read, write
from orchestrator.model import AcceleratorNeed, Bound, Need, Offer
from orchestrator.plan import plan, rank
from orchestrator.plan.fit import MANY, near_misses

GIB = 1 << 30
AWS = read(SHIPPED, "aws")
GCP = read(SHIPPED, "gcp")
BOTH = (AWS, GCP)


def gpu(name: str | None = None, count: int = 1, memory: Bound | None = None) -> AcceleratorNeed:
    return AcceleratorNeed(Bound(count), name, memory)


# ---------------------------------------------------------------- a slow, plain way to the same answer


def all_offers(need: Need, *, catalogs: tuple[Catalog, ...] = BOTH) -> list[Offer]:
    """Every row of the catalogs as offers of what `need` rents, spot or not."""
    return [offer for each in catalogs for kind in each.sold for offer in of_kind(need, each, kind)]


def of_kind(need: Need, held: Catalog, sold: tuple[Offer, Sequence[Sale] | Attachable]) -> Iterator[Offer]:
    kind, how = sold
    sales = held.sales_of(kind, how)
    listed = bool(kind.accelerator) and any(sale.zones for sale in sales)
    asks = need.accelerator is not None or need.instance_type is not None
    plain = {
        sale.region for each in held.kinds if not each.accelerator for sale in held.sales[each.instance_type]
    }
    for sale in sales:
        if listed and not sale.zones:
            continue
        if kind.accelerator and not asks and sale.region not in plain:
            continue
        unrecorded = math.isnan(sale.spot)
        price = sale.price if unrecorded or not need.spot else sale.spot
        asked = [need.zone] if need.zone and need.zone.startswith(sale.region) else []
        there = asked if asked and (not sale.zones or need.zone in sale.zones) else []
        for zone in there or sale.zones or [""]:
            yield replace(
                kind,
                region=sale.region,
                zone=zone,
                price=price,
                spot=need.spot,
                on_demand=sale.price if need.spot and not math.isnan(sale.price) else None,
                price_is_bound=need.spot and unrecorded,
            )


def only(held: Catalog, regions: set[str]) -> Catalog:
    """The rows of a few regions: all kinds, and few enough for the slow way."""
    kept = {name: [s for s in sales if s.region in regions] for name, sales in held.sales.items()}
    return replace(held, sales=kept)


SOME = (only(AWS, {"us-east-1", "eu-west-1"}), only(GCP, {"us-central1", "africa-south1"}))

few = st.sampled_from
sizes = st.builds(Bound, few([n * GIB for n in (1, 4, 15, 16, 64, 256)]), st.booleans())
gpus = st.builds(
    AcceleratorNeed,
    st.builds(Bound, few([1, 2, 4, 8]), st.booleans()),
    few([None, "T4", "L4", "A100", "A100-80GB", "H100", "V100", "INFERENTIA2", "K80"]),
    st.none() | st.builds(Bound, few([n * GIB for n in (8, 16, 24, 80)]), st.booleans()),
)
needs = st.builds(
    Need,
    cloud=few(["aws", "gcp", "any"]),
    cpus=st.none() | st.builds(Bound, few([1, 2, 4, 8, 96]), st.booleans()),
    memory=st.none() | sizes,
    accelerator=st.none() | gpus,
    arch=few([None, "x86_64", "arm64"]),
    spot=st.booleans(),
    region=few([None, None, "us-east-1", "us-central1", "africa-south1"]),
    zone=few([None, None, "us-east-1a", "us-central1-a", "us-central1-f"]),
    max_price=few([None, 0.05, 0.5, 1.0, 10.0]),
    local_ssd=few([None, None, 100 * 10**9, 10**12]),
    network=few([None, None, 5.0, 50.0]),
)


@settings(max_examples=25, deadline=None)
@given(needs)
@example(Need("gcp", local_ssd=100 * 10**9))  # GPUs with a price in a region where no zone has them
@example(Need("gcp", local_ssd=100 * 10**9, region="us-central1"))
def test_the_chosen_satisfies_all_none_cheaper_does_and_the_near_misses_are_the_same(need: Need) -> None:
    same_by_both_ways(need, SOME)


@pytest.mark.parametrize("spot", [False, True])
def test_the_same_over_the_whole_catalog(spot: bool) -> None:
    same_by_both_ways(
        Need("any", memory=Bound(16 * GIB, True), arch="x86_64", spot=spot, max_price=2.0), BOTH
    )


def same_by_both_ways(need: Need, catalogs: tuple[Catalog, ...]) -> None:
    everything = all_offers(need, catalogs=catalogs)
    expected = rank(need, everything)
    assert list(serving(need, catalogs)) == expected[:MANY]
    made = plan(need, (*serving(need, catalogs), *missing(need, catalogs)), [], max_duration=3600)
    assert list(made.offers) == expected[:MANY]
    slow = near_misses(need, everything)
    assert [(miss.offer.instance_type, miss.reason) for miss in made.rejected] == [
        (miss.offer.instance_type, miss.reason) for miss in slow
    ]


# ---------------------------------------------------------------- facts


def types(need: Need) -> list[str]:
    return list(dict.fromkeys(offer.instance_type for offer in serving(need, BOTH)))


@pytest.mark.parametrize(
    ("need", "first"),
    [
        (Need("aws", accelerator=gpu("T4")), "g4dn.xlarge"),
        (Need("aws", accelerator=gpu("T4", 4)), "g4dn.12xlarge"),
        (Need("gcp", accelerator=gpu("L4"), region="us-central1"), "g2-standard-4"),
        (Need("gcp", accelerator=gpu("T4"), cpus=Bound(4), memory=Bound(15 * GIB)), "n1-standard-4"),
        (Need("aws", accelerator=gpu("INFERENTIA2")), "inf2.xlarge"),
        (Need("aws", arch="arm64", accelerator=gpu("T4G")), "g5g.xlarge"),
        (Need("aws", accelerator=gpu("H200", 8), max_price=1), None),
    ],
)
def test_the_cheapest_type(need: Need, first: str | None) -> None:
    assert next(iter(types(need)), None) == first


def test_known_offers_in_full() -> None:
    (t4,) = serving(Need("aws", accelerator=gpu("T4"), cpus=Bound(4), region="us-east-1"), BOTH)
    assert t4 == Offer(
        "aws",
        "g4dn.xlarge",
        "us-east-1",
        "",
        4,
        16 * GIB,
        "x86_64",
        0.526,
        accelerator="T4",
        accelerator_count=1,
        gpu_memory=16 * GIB,
        vendor="nvidia",
        local_ssd=125 * 10**9,
        network=5.0,
    )
    need = Need("gcp", accelerator=gpu("T4"), cpus=Bound(4), memory=Bound(15 * GIB), spot=True)
    offers = serving(need, BOTH)
    assert {offer.zone for offer in offers} == {
        "us-central1-a",
        "us-central1-b",
        "us-central1-c",
        "us-central1-f",
    }
    bare = next(sale for sale in GCP.sales["n1-standard-4"] if sale.region == "us-central1")
    assert offers[0].price == round(bare.spot + 0.11, 6)
    assert offers[0].on_demand == round(bare.price + 0.35, 6)
    assert (offers[0].attach, offers[0].price_is_bound) == ("nvidia-tesla-t4", False)


def test_spot_without_a_price_states_the_most_that_it_may_cost() -> None:
    spot = serving(Need("aws", accelerator=gpu("T4"), spot=True), BOTH)
    assert spot and all(offer.price_is_bound and offer.price == offer.on_demand for offer in spot)
    assert not any(offer.price_is_bound for offer in serving(Need("gcp", spot=True), BOTH))


def test_a_zone_asked_for_stands_in_for_an_unknown_one_and_for_no_other() -> None:
    (offer,) = serving(Need("aws", accelerator=gpu("T4"), cpus=Bound(4), zone="us-east-1c"), BOTH)
    assert offer.zone == "us-east-1c"
    known = Need("gcp", accelerator=gpu("L4"), cpus=Bound(4), region="us-central1", zone="us-central1-f")
    assert serving(known, BOTH) == ()
    assert "it is in us-central1-a, not us-central1-f" in reasons(known).values()


def reasons(need: Need) -> dict[str, str]:
    made = plan(need, (*serving(need, BOTH), *missing(need, BOTH)), [], max_duration=60)
    return {f"{miss.offer.instance_type} {miss.offer.accelerator}": miss.reason for miss in made.rejected}


@pytest.mark.parametrize(
    ("need", "kind", "reason"),
    [
        (
            Need("gcp", accelerator=gpu(memory=Bound(24 * GIB, True)), region="us-central1", max_price=0.8),
            "g2-standard-4 L4",
            "the memory of its GPU is 22.35 GiB, where 24 GiB or more was asked for",
        ),
        (
            Need("aws", accelerator=gpu("T4"), region="af-south-1"),
            "g4dn.xlarge T4",
            "it is in us-east-1, not af-south-1",
        ),
        (
            Need("aws", accelerator=gpu("T4"), max_price=0.5),
            "g4dn.xlarge T4",
            "$0.526 an hour is over max_price, $0.5",
        ),
        (
            Need("gcp", accelerator=gpu("T4"), region="europe-west4", cpus=Bound(4)),
            "n1-standard-4 T4",
            "its price in europe-west4 is not known",
        ),
        (
            Need("aws", accelerator=gpu("L4"), max_price=0.3),
            "g6f.large L4",
            "it has a part of one L4, where 1 L4 was asked for",
        ),
    ],
)
def test_near_misses_say_why(need: Need, kind: str, reason: str) -> None:
    assert reasons(need).get(kind) == reason


def test_any_compares_both_clouds() -> None:
    need = Need("any", accelerator=gpu("T4"), cpus=Bound(4, True), arch="x86_64")
    offers = serving(need, BOTH)
    assert {offer.cloud for offer in offers} == {"aws", "gcp"}
    assert [offer.price for offer in offers] == sorted(offer.price for offer in offers)
    assert {offer.cloud for offer in catalog.offers(need, clouds=("aws",))} == {"aws"}


def test_attached_gpus_keep_to_what_n1_may_have() -> None:
    given = [kind for kind, _ in GCP.sold if kind.attach]
    assert {kind.instance_type.split("-")[0] for kind in given} == {"n1"}
    assert max(kind.cpus for kind in given if (kind.accelerator, kind.accelerator_count) == ("V100", 1)) == 8
    assert {kind.accelerator_count for kind in given if kind.accelerator == "T4"} == {1, 2, 4}


# ---------------------------------------------------------------- files


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    for held in BOTH:
        write(tmp_path, held)
        back = read(tmp_path, held.cloud)
        assert sorted(back.kinds, key=str) == sorted(held.kinds, key=str)
        assert str(sorted(back.sales.items())) == str(sorted(held.sales.items()))
        assert (str(back.attachable), back.facts) == (str(held.attachable), held.facts)


def test_old_prices_are_said_to_be_old(tmp_path: Path) -> None:
    need = Need("aws", region="us-east-1")
    fresh = date(2026, 8, 19)
    assert catalog.warnings(need, refreshed=tmp_path, today=fresh) == ()
    (old,) = catalog.warnings(need, refreshed=tmp_path, today=date(2026, 8, 20))
    assert old == (
        "Prices of aws are of 2026-07-20, 31 days old. Renew them: "
        "orch catalog refresh aws --region us-east-1"
    )
    assert len(catalog.warnings(Need("any"), refreshed=tmp_path, today=date(2027, 1, 1))) == 2


def renewed(held: Catalog, day: date) -> Catalog:
    return replace(held, facts=replace(held.facts, date=day, regions={}))


def test_the_newer_catalog_is_taken_and_a_broken_one_passed_over(tmp_path: Path) -> None:
    assert catalog.load("aws", refreshed=tmp_path).facts == AWS.facts
    older = renewed(AWS, date(2020, 1, 1))
    keep(older, tmp_path, datetime(2020, 1, 1, tzinfo=UTC))
    assert catalog.load("aws", refreshed=tmp_path).facts.date == AWS.facts.date
    for day in (1, 2, 3, 4):
        last = keep(renewed(AWS, date(2026, 12, day)), tmp_path, datetime(2026, 12, day, tzinfo=UTC))
    assert catalog.load("aws", refreshed=tmp_path).facts.date == date(2026, 12, 4)
    assert len(list(last.parent.iterdir())) == 2
    assert catalog.load("gcp", refreshed=tmp_path).facts == GCP.facts


@pytest.mark.parametrize("damage", ["facts.json", "aws_prices.csv", "aws_types.csv"])
def test_a_damaged_cache_is_passed_over(damage: str, tmp_path: Path) -> None:
    place = keep(renewed(AWS, date(2026, 12, 4)), tmp_path, datetime(2026, 12, 4, tzinfo=UTC))
    (place / damage).write_text("instance_type\n<html>")
    assert catalog.load("aws", refreshed=tmp_path).facts == AWS.facts
    shutil.rmtree(place)
    assert catalog.load("aws", refreshed=tmp_path).facts == AWS.facts


def test_where_refreshed_catalogs_are_kept() -> None:
    assert catalog.cache_folder({"ORCH_CACHE_HOME": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert catalog.cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/orch")
    assert catalog.cache_folder({}) == Path.home() / ".cache" / "orch"


def test_there_is_no_catalog_of_other_clouds() -> None:
    with pytest.raises(KeyError, match="there are aws, gcp"):
        catalog.load("azure")


def test_a_gpu_is_offered_only_where_a_zone_is_known_to_have_it() -> None:
    """Google's price list names regions that have none of the hardware: an L4 in europe-north1."""
    found = catalog.offers(Need("gcp", accelerator=gpu("L4")))
    assert found and all(offer.zone for offer in found)
    assert any(not sale.zones for sale in catalog.load("gcp").sales["g2-standard-4"]), "such rows are there"
    assert catalog.offers(Need("aws", accelerator=gpu("T4"))), "of AWS no zone is recorded at all"


REGIONS = {
    "aws": ("us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1", "ap-south-1"),
    "gcp": ("us-central1", "us-west1", "us-east1", "us-east4", "europe-west4", "asia-south1"),
}


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_prices_of_gpus_are_recorded_with_their_date_in_many_regions(cloud: str) -> None:
    held = catalog.load(cloud)
    found = {offer.region for offer in catalog.offers(Need(cloud, accelerator=gpu("T4")))}
    found |= {offer.region for offer in catalog.offers(Need(cloud, accelerator=gpu("L4")))}
    assert found >= set(REGIONS[cloud])
    assert all(held.facts.of(region, accelerated=True).year >= 2026 for region in found)
    assert all("-" in region and not region.startswith("us-gov") for region in found)


def test_the_date_is_that_of_the_region_on_top(tmp_path: Path) -> None:
    """us-east-1 was recorded later than the other regions of AWS."""
    need = Need("aws", accelerator=gpu("T4"))
    today = date(2026, 9, 1)
    for region, day in (("us-east-1", "2026-07-20"), ("eu-west-1", "2026-01-21")):
        first = next(offer for offer in catalog.offers(need) if offer.region == region)
        (old,) = catalog.warnings(need, refreshed=tmp_path, today=today, first=first)
        assert f"are of {day}" in old and f"--region {region}" in old


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_prices_without_gpus_are_recorded_in_many_regions(cloud: str) -> None:
    need = Need(cloud, cpus=Bound(4, True), memory=Bound(16 * GIB, True))
    for region in REGIONS[cloud]:
        best = catalog.offers(replace(need, region=region))[0]
        assert 0.05 < best.price < 0.25, f"{region}: {best.instance_type} at {best.price}"


def test_prices_of_one_family_go_with_its_size() -> None:
    """Of its sizes, as in us-east-1: by this the shared price is told from those of dedicated machines."""
    held, drift = catalog.load("aws"), 0.0
    by: dict[tuple[str, str], list[float]] = {}
    for name, sales in held.sales.items():
        base = {sale.region: sale.price for sale in sales}
        for region, price in base.items():
            by.setdefault((name.partition(".")[0], region), []).append(price / base["us-east-1"])
    for ratios in by.values():
        drift = max(drift, max(ratios) / min(ratios) - 1)
    assert drift < 0.06, "a dedicated machine costs 6 % more and beyond"


def test_older_prices_are_dated_as_such(tmp_path: Path) -> None:
    today, plain = date(2026, 9, 1), Need("aws", cpus=Bound(4), region="eu-west-1")
    for need, day in ((plain, "2025-03-02"), (replace(plain, accelerator=gpu("T4")), "2026-01-21")):
        (old,) = catalog.warnings(need, refreshed=tmp_path, today=today)
        assert f"are of {day}" in old


def test_who_asks_for_no_gpu_is_offered_none_where_only_those_are_recorded() -> None:
    gpus = {kind.instance_type for kind in AWS.kinds if kind.accelerator}
    kept = {
        name: [sale for sale in sales if name in gpus or sale.region == "us-east-1"]
        for name, sales in AWS.sales.items()
    }
    held = replace(AWS, sales=kept)
    need = Need("aws", cpus=Bound(2), memory=Bound(4 * GIB, True), prefer="eu-central-1")
    assert {offer.region for offer in serving(need, (held,))} == {"us-east-1"}
    named = replace(need, cpus=Bound(4), memory=None, instance_type="g4dn.xlarge")
    assert serving(named, (held,))[0].region == "eu-central-1"
