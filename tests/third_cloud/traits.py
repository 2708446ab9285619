"""What shared code knows of the third cloud."""

from orchestrator.model.cloud_traits import CloudTraits, Places

TRAITS = CloudTraits(
    name="third",
    opener="tests.third_cloud.provider:open_third",
    aliases=("tertius",),
    places=Places(
        region="(?:north|south)-[0-9]",
        zone="-[a-c]",
        region_example="north-1",
        zone_example="north-1-b",
    ),
    account_noun="tenant",
    image_variable="ORCH_THIRD_IMAGE",
)
