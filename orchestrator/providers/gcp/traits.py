"""The facts about Google Cloud for shared code."""

from orchestrator.model.cloud_traits import CloudTraits, Form, LabelForms, Places
from orchestrator.model.images import ImageMarket
from orchestrator.providers.gcp.disks import MARKET

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
    setup="orchestrator.providers.gcp.setup",
    home="orchestrator.providers.gcp.home:region",
    buckets="gs",
    egress="orchestrator.providers.gcp.egress:usd_per_gib",
    terraform="terraform/gcp",
    disks=MARKET,
    close_types="(a2|a3|a4|a4x|c2|c2d|c3|c3d|g2|g4|h3|n2|n2d)-.+",
    images=ImageMarket(0.05, "us-central1"),
    identity=Form(
        r"[a-z0-9-]{1,63}@[a-z0-9.-]+\.gserviceaccount\.com", "trainer@my-project.iam.gserviceaccount.com"
    ),
    reservation=Form(
        "(projects/[a-z0-9.:-]+/reservations/)?[a-z][a-z0-9-]{0,62}(/reservationBlocks/[a-z0-9-]+)?",
        "my-reservation",
    ),
    labels=LabelForms(Form("(?!orch-)[a-z][a-z0-9_-]{0,62}", "team"), Form("[a-z0-9_-]{0,63}", "vision"), 50),
    notices="gcp",
)
