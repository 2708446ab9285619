"""Emulated clouds for the tests that speak to them directly, and what of the long tables runs at night."""

from __future__ import annotations

import pytest

from tests.clouds.conftest import shared_aws, shared_google

__all__ = ["shared_aws", "shared_google"]

ON_AN_ADVERSE_CLOUD = (
    "test_create_twice_is_one_machine",
    "test_deleted_is_gone_and_deleting_again_is_fine",
    "test_it_is_found_by_its_id_until_it_is_gone",
    "test_the_endpoint_comes_with_a_host_key_and_stays",
)
"""What always runs where one call of Google's API in four goes wrong."""


GROUPS_ON_CLOUDS = {
    "[aws]": (
        "test_joined_machines_reach_each_other",
        "test_the_group_of_deleted_machines",
        "test_killed_between_its_effects",
    ),
    "[gcp]": (
        "test_joined_machines_reach_each_other",
        "test_a_replaced_machine_is_out",
        "test_the_group_of_deleted_machines",
        "test_killed_between_its_effects",
    ),
}
"""What always runs of groups on emulated clouds, whose machines take seconds."""


IMAGES_ALWAYS = (
    "test_a_machine_boots_it",
    "test_a_name_that_other_contents_have",
    "test_deleted_is_gone",
    "test_no_image_of_a_machine",
)
"""What always runs of images of machines that take seconds, and one bad name of eight."""


def _is_image_at_night(item: pytest.Item) -> bool:
    if "test_images.py" not in item.nodeid or "[memory" in item.name:
        return False
    always = item.name.startswith(IMAGES_ALWAYS) or item.name.endswith("-../x]")
    return not always or "gcp-adverse" in item.name


def pytest_itemcollected(item: pytest.Item) -> None:
    if _is_image_at_night(item):
        item.add_marker(pytest.mark.nightly)
    for cloud, always in GROUPS_ON_CLOUDS.items():
        of_groups = "test_groups" in item.nodeid and item.name.endswith(cloud)
        if of_groups and not item.name.startswith(always):
            item.add_marker(pytest.mark.nightly)
    if item.name.endswith("[gcp-adverse-0]") and not item.name.startswith(ON_AN_ADVERSE_CLOUD):
        item.add_marker(pytest.mark.nightly)
