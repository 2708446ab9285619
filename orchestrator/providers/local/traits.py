"""What shared code knows of the machines on this computer."""

from orchestrator.model.clouds import LOCAL, CloudTraits

TRAITS = CloudTraits(
    name=LOCAL,
    opener="orchestrator.providers.local.provider:open_local",
    rented=False,
    here=True,
)
