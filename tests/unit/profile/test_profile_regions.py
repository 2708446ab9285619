"""`region` as a list: only these, the first before the others, and each checked at its own place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalog import offers
from orchestrator.catalog.for_plan import warnings_for
from orchestrator.errors import ProfileError
from orchestrator.model import Bound, Need, Offer
from orchestrator.plan.fit import rank
from orchestrator.profile import Profile, load

HEAD = "version: 1\nname: x\ncloud: {cloud}\nmax_duration: 1h\ntrain: {{command: python train.py}}\n"
MEMORY = "resources: {memory: 4 GiB+}\n"
GIB = 1 << 30
EAST = Offer("aws", "c5.large", "us-east-1", "", 2, 4 * GIB, "x86_64", 0.085)
WEST = replace(EAST, region="us-west-2", price=0.05)
NORTH = replace(EAST, region="eu-north-1", price=0.01)


def read(folder: Path, rest: str, cloud: str = "aws") -> Profile:
    path = folder / "p.yaml"
    path.write_text(HEAD.format(cloud=cloud) + rest + MEMORY)
    return load(path)


@pytest.mark.parametrize("text", ["region: [us-east-1, us-west-2]\n", "region:\n- us-east-1\n- us-west-2\n"])
def test_only_these_and_the_first_before_the_others(tmp_path: Path, text: str) -> None:
    need = read(tmp_path, text).need()
    assert (need.region, need.regions) == (None, ("us-east-1", "us-west-2"))
    assert rank(need, [NORTH, WEST, EAST]) == [EAST, WEST]


def test_a_list_of_one_is_that_region(tmp_path: Path) -> None:
    one, same = (read(tmp_path, f"region: {text}\n") for text in ("us-east-1", "[us-east-1]"))
    assert one == same
    assert (one.region, one.regions, one.need().prefer) == ("us-east-1", (), None)


def test_the_catalog_offers_no_other(tmp_path: Path) -> None:
    text = "region: [europe-west4, us-central1]\n"
    need = read(tmp_path, text, "gcp").need()
    found = [offer.region for offer in offers(need)]
    assert found[0] == "europe-west4"
    assert {offer.region for offer in offers(replace(need, regions=(), prefer=None))} - set(found)
    assert set(found) <= {"europe-west4", "us-central1"}


def test_each_of_which_nothing_is_recorded_is_named() -> None:
    need = Need("aws", cpus=Bound(4), regions=("us-east-1", "xx-east-1", "xx-west-1"), prefer="us-east-1")
    lacking = [text for text in warnings_for(need) if text.startswith("No prices")]
    assert ["xx-east-1" in lacking[0], "xx-west-1" in lacking[1], len(lacking)] == [True, True, 2]


@pytest.mark.parametrize(
    ("rest", "where", "words"),
    [
        ("region: [us-east-1, us-central1]\n", "6:21", "'us-central1' is no region of aws"),
        ("region:\n- us-east-1\n- moon-east1\n", "8:3", "'moon-east1' is no region of aws"),
        ("region:\n- us-east-1\n- moon\n", "7:", "found the text 'moon'"),
        ("region: []\n", "6:", "found an empty list"),
        ("region: [us-east-1, us-east-1]\n", "6:", "named twice"),
        ("region: [us-east-1, 5]\n", "6:", "5"),
        ("region: [us-east-1, us-west-2]\nzone: us-east-1a\n", "7:7", "a zone is in one region"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(tmp_path: Path, rest: str, where: str, words: str) -> None:
    with pytest.raises(ProfileError) as refused:
        read(tmp_path, rest)
    assert f":{where}" in refused.value.message
    assert words in refused.value.message


def test_regions_of_any_cloud_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="each cloud has other names for its regions"):
        read(tmp_path, "region: [us-east-1, us-west-2]\n", "any")
