"""The facts about AWS for shared code."""

from orchestrator.model.cloud_traits import CloudTraits, Form, LabelForms, Places
from orchestrator.model.images import ImageMarket
from orchestrator.providers.aws.disks import MARKET

TRAITS = CloudTraits(
    name="aws",
    opener="orchestrator.providers.aws.provider:open_aws",
    keeps_deadlines=False,
    aliases=("ec2",),
    places=Places(
        region=r"[a-z]{2}(?:-[a-z]+)+-[0-9]{1,2}",
        zone="[a-z]|-[a-z0-9]+-[0-9][a-z]",
        region_example="us-east-1",
        zone_example="us-east-1a",
    ),
    catalog="orchestrator.catalog.aws",
    readiness="orchestrator.providers.aws.readiness",
    setup="orchestrator.providers.aws.setup",
    home="orchestrator.providers.aws.home:region",
    buckets="s3",
    egress="orchestrator.providers.aws.egress:usd_per_gib",
    terraform="terraform/aws",
    regions_from_environment=True,
    image_variable="ORCH_AWS_IMAGE",
    disks=MARKET,
    images=ImageMarket(0.05, "us-east-1"),
    close_types=r"(?!t\d|mac|vt1)(?![a-z0-9]+-flex\.).+",
    identity=Form(r"[\w+=,.@-]{1,128}", "my-instance-profile"),
    reservation=Form("cr-[0-9a-f]{8,17}", "cr-0123456789abcdef0"),
    labels=LabelForms(
        Form(r"(?!(?i:aws:|orch-)|Name$)[A-Za-z0-9_ +=.:/@-]{1,128}", "team"),
        Form(r"[A-Za-z0-9_ +=.:/@-]{0,256}", "vision"),
        30,
    ),
    notices="aws",
)
