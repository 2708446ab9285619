"""What shared code knows of AWS."""

from orchestrator.model.clouds import CloudTraits, Places

TRAITS = CloudTraits(
    name="aws",
    opener="orchestrator.providers.aws.provider:open_aws",
    aliases=("ec2",),
    places=Places(
        region=r"[a-z]{2}(?:-[a-z]+)+-[0-9]{1,2}",
        zone="[a-z]|-[a-z0-9]+-[0-9][a-z]",
        region_example="us-east-1",
        zone_example="us-east-1a",
    ),
    catalog="orchestrator.catalog.aws",
    readiness="orchestrator.providers.aws.readiness",
    terraform="terraform/aws",
    regions_from_environment=True,
    image_variable="ORCH_AWS_IMAGE",
    notices="aws",
)
