"""What shared code knows of Google Cloud."""

from orchestrator.model.clouds import CloudTraits, Places

TRAITS = CloudTraits(
    name="gcp",
    opener="orchestrator.providers.gcp.provider:open_gcp",
    aliases=("google",),
    places=Places(
        region="[a-z]+-[a-z]+[0-9]{1,2}",
        zone="-[a-z]",
        region_example="us-central1",
        zone_example="us-central1-a",
    ),
    account_noun="project",
    catalog="orchestrator.catalog.gcp",
    readiness="orchestrator.providers.gcp.readiness",
    terraform="terraform/gcp",
    notices="gcp",
)
