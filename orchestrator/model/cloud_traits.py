"""The facts that shared code asks of a cloud."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.model.disks import NO_DISKS, DiskMarket
from orchestrator.model.images import ImageMarket


@dataclass(frozen=True)
class Places:
    """How a cloud names its regions and zones.

    `region` is the pattern of a region's name, `zone` of what follows the region in the name of a zone in it.
    The examples stand in messages.
    """

    region: str
    zone: str
    region_example: str
    zone_example: str

    def is_region(self, name: str) -> bool:
        """Return whether `name` has the form of a region's name."""
        return re.fullmatch(self.region, name) is not None

    def region_of(self, zone: str) -> str | None:
        """Return the region of `zone`; None if `zone` does not have the form of a zone's name."""
        match = re.fullmatch(f"({self.region})({self.zone})", zone)
        return match[1] if match else None

    def lies_in(self, zone: str, region: str) -> bool:
        """Return whether the name of `zone` says that it is a zone of `region`."""
        return re.fullmatch(f"{re.escape(region)}({self.zone})", zone) is not None


@dataclass(frozen=True)
class Form:
    """The form of a name that a cloud assigns: its pattern, and an example for messages."""

    pattern: str
    example: str

    def fits(self, text: str) -> bool:
        return re.fullmatch(self.pattern, text) is not None


@dataclass(frozen=True)
class LabelForms:
    """The labels that a cloud accepts from the user; at most `most` of them, in addition to those of orch."""

    key: Form
    value: Form
    most: int


@dataclass(frozen=True)
class CloudTraits:
    """What shared code must know of one cloud before it opens its provider.

    Paths are dotted: of a module, or of a function as "module:function". "": the cloud has no such thing.
    """

    name: str
    opener: str
    """The function that makes the provider. It takes the folder for state, or None."""

    rented: bool = True
    """Its machines cost money, so a profile must limit their time and say how large they are."""

    keeps_deadlines: bool = True
    """It ends a machine at its deadline whatever happens to the guest, from the create call on."""

    here: bool = False
    """Its machines are on this computer: its lists never lag, and the drivers are the user's."""

    aliases: tuple[str, ...] = ()
    """Other names that people write for it; a profile with one is refused, with the correct name."""

    places: Places | None = None
    """None if names of regions and zones in profiles cannot be checked."""

    account_noun: str = "account"
    """What the cloud calls the unit that it bills."""

    catalog: str = ""
    """The module whose `renew` asks what the cloud sells. The folder `data` beside it holds the catalog
    that is shipped.
    """

    readiness: str = ""
    """The module whose `examine` says whether a machine could be created."""

    setup: str = ""
    """The module whose `lacking` and `made` say what `orch setup` creates and removes: a
    model.setup.Setup.
    """

    buckets: str = ""
    """The scheme in the urls of its object storage."""

    egress: str = ""
    """The function that prices a GiB out of a bucket. Its arguments: the bucket's location, and the
    region of this cloud that the data go to; None for a destination elsewhere.
    """

    terraform: str = ""
    """The folder whose Terraform files create its network."""

    home: str = ""
    """The function that finds the user's default region in an environment: its offers come first."""

    regions_from_environment: bool = False
    """Its provider reads from the environment which regions have a network, so that a profile need not
    name one.
    """

    image_variable: str = ""
    """The environment variable that can select an image without the GPU's driver."""

    disks: DiskMarket = NO_DISKS
    """The kinds of disk of its machines. None of them: `resources.disk` is a size only."""

    images: ImageMarket | None = None
    """What stored images of its machines cost; None: orch makes none there."""

    close_types: str = ""
    """The pattern of the machine types that can be placed close together; "": none can."""

    identity: Form | None = None
    """The form of the identities that its machines may have; None: they have none."""

    reservation: Form | None = None
    """The form of the names of reserved capacity; None: the cloud has none."""

    labels: LabelForms | None = None
    """The form of the user's own labels; None: its machines accept none."""

    notices: str = ""
    """The listener of `runtime.agent.notices` for the announcement that a spot machine will be preempted."""

    def places_together(self, instance_type: str) -> bool:
        """Return whether machines of this type can be placed close together."""
        return bool(self.close_types) and re.fullmatch(self.close_types, instance_type) is not None
