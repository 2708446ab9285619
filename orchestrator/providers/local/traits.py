"""The facts about machines on this computer for shared code."""

from orchestrator.model.cloud_traits import CloudTraits
from orchestrator.model.clouds import LOCAL
from orchestrator.model.images import ImageMarket

TRAITS = CloudTraits(
    name=LOCAL,
    opener="orchestrator.providers.local.provider:open_local",
    rented=False,
    here=True,
    images=ImageMarket(0.0),
)
