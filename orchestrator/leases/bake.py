"""orch image bake: a machine of its own, its stack installed, an image of it, and the machine deleted.

The order of effects: the ledger notes the image's name before the machine is prepared, because nobody can
log in afterwards. A call that was killed is repeated: an image that the cloud has is waited for, a prepared
machine without an image is deleted, and the rest starts again.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator import stack
from orchestrator.errors import Fault, Interrupted, OrchError, ProviderError, UsageError
from orchestrator.leases.consent import Approve
from orchestrator.leases.down import down
from orchestrator.leases.images import labels_of, name_of
from orchestrator.leases.offered import one_cloud, planned_of
from orchestrator.leases.provision import LeaseRequest, provision
from orchestrator.leases.tier import require_own_files
from orchestrator.ledger import Lease, Ledger
from orchestrator.ledger.events import ImageIntent, ImageMade
from orchestrator.model import ImageState, LeaseStatus, MachineImage, Offer, Progress, Provider, clouds
from orchestrator.model.images import NAME
from orchestrator.model.progress import doing, notice
from orchestrator.profile import Profile
from orchestrator.providers import open_provider
from orchestrator.session.machines import machine_from_holding
from orchestrator.session.project import Project
from orchestrator.session.session import open_session
from orchestrator.session.work_locks import changing

LONGEST_S = 2 * 3600
"""The longest that the machine lasts of which an image is made, if the profile allows more."""
STORING_S = 3600.0
"""Seconds that a cloud may take to store an image."""
_POLL_S = 2.0


@dataclass(frozen=True)
class Baked:
    """An image, and what making it cost in US dollars; `existed`: it was there before."""

    image: MachineImage
    existed: bool
    cost: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class BakeRequest:
    """A request for an image. `wanted`: its profile, read with `overrides`. `name`: None: by its contents.
    `approve`: gets the plan before anything that costs money is created.
    """

    project: Project
    wanted: Profile
    overrides: Sequence[str]
    name: str | None
    approve: Approve | None
    tell: Progress

    @property
    def command(self) -> str:
        """The command line that repeats the call."""
        named = ["--name", self.name] if self.name else []
        return shlex.join(["orch", "image", "bake", str(self.wanted.path), *named])


def bake(asked: BakeRequest) -> Baked:
    """Make an image with the profile's stack, or find the one that exists. Safe to repeat.

    The machine is deleted at the end, whatever happens; an error says what is left and what it costs.
    """
    wanted, overrides = one_cloud(asked.project, asked.wanted, asked.overrides)
    require_images(wanted.cloud, shlex.quote(str(wanted.path)))
    _require_name(asked.name)
    if clouds.is_here(wanted.cloud):
        require_own_files()
    asked = replace(asked, wanted=_for_image(wanted), overrides=overrides)
    asked.project.share(wanted.ledger)
    provider = open_provider(wanted.cloud)
    _end_prepared(asked, provider)
    planned = planned_of(asked.wanted, provider, ())
    if planned.offers:
        there = _existing(asked, provider, planned.offers)
        if there is not None:
            return there
    begun = time.monotonic()
    with _ending(asked, provider):
        held = provision(_request(asked))
        image = _made(asked, provider, held, planned.offers)
    report = down(held.lease, folder=asked.project.root, discard=True, progress=asked.tell)
    return Baked(image, False, report.cost, time.monotonic() - begun)


def require_images(cloud: str, profile: str = "PROFILE") -> None:
    """Raise UsageError for a cloud of whose machines orch makes no images."""
    if not clouds.exists(cloud) or clouds.traits(cloud).images is None:
        able = ", ".join(name for name in clouds.names() if clouds.traits(name).images)
        raise UsageError(
            f"orch makes no images on {cloud} yet; it does on {able}.",
            next_command=f"orch up {profile}    # installs the packages on the machine",
        )


def _require_name(name: str | None) -> None:
    if name is not None and not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name an image: a lower-case letter, then letters, digits and hyphens, "
            "3 to 63 characters, no hyphen at the end.",
        )


def _for_image(wanted: Profile) -> Profile:
    """The profile of the machine: a lease of its own, not on spot, for no longer than it takes, without
    data.
    """
    resources = replace(wanted.resources, spot=False, nodes=1)
    return replace(
        wanted,
        name=f"{wanted.name}-image",
        resources=resources,
        max_duration=min(wanted.max_duration, LONGEST_S),
        data=(),
        store=None,
    )


def _request(asked: BakeRequest) -> LeaseRequest:
    facts = (asked.project, asked.wanted, asked.overrides, asked.approve, asked.tell)
    return LeaseRequest(*facts, for_image=True)


# ---------------------------------------------------------------- what an earlier call left


def _end_prepared(asked: BakeRequest, provider: Provider) -> None:
    """End the machine of an earlier call that nobody can log in to any more; wait for its image first."""
    lease = asked.project.open_lease_of(asked.wanted.name)
    if lease is None or not lease.baking:
        return
    asked.tell.say(f"Continuing after an interrupted call: {lease.baking}")
    found = _named(provider, lease.baking)
    if found is not None and found.state is not ImageState.FAILED:
        found = _stored(provider, found, asked.tell)
        _note(asked.project.ledger(lease.id), found)
    elif found is not None:
        provider.delete_image(found)
    down(lease.id, folder=asked.project.root, discard=True, progress=asked.tell)


def _existing(asked: BakeRequest, provider: Provider, offers: Sequence[Offer]) -> Baked | None:
    """The image, if there is one with that name, or by its contents. A failed one is deleted."""
    labels = labels_of(asked.wanted, offers[0])
    name = asked.name or name_of(_named_as_typed(asked.wanted), labels)
    for image in provider.images({}):
        same = labels.items() <= image.labels.items() and image.region in ("", offers[0].region)
        if image.name != name or (asked.name is None and not same):
            continue
        if image.state is ImageState.FAILED:
            notice(asked.tell, f"Deleting {image.name}, which was never completed")
            provider.delete_image(image)
        elif not same:
            raise UsageError(
                f"The image {image.name} holds other packages, or was made for other machines.",
                exists=f"It still exists{f' in {image.region}' if image.region else ''}.",
                next_command=f"orch image delete {image.name}    # or choose another --name",
            )
        else:
            return Baked(_stored(provider, image, asked.tell), True)
    return None


def _named_as_typed(wanted: Profile) -> Profile:
    return replace(wanted, name=wanted.name.removesuffix("-image"))


# ---------------------------------------------------------------- the image


def _made(asked: BakeRequest, provider: Provider, held: LeaseStatus, offers: Sequence[Offer]) -> MachineImage:
    ledger = asked.project.ledger(held.lease)
    lease = ledger.lease()
    holding = lease.holding
    if holding is None:
        raise UsageError("The machine is gone before an image was made of it.", next_command=asked.command)
    machine = machine_from_holding(holding)
    labels = labels_of(asked.wanted, _offer_of(held, offers))
    name = asked.name or name_of(_named_as_typed(asked.wanted), labels)
    with changing(asked.project, lease.id, "image bake", asked.tell):
        with open_session(asked.project, ledger, asked.wanted, progress=asked.tell) as session:
            ledger.record(ImageIntent(name))
            asked.tell.say("Removing keys, identity, logs and secrets from the machine")
            stack.prepare_image(session.host, session.agent)
        with doing(asked.tell, f"Making the image {name}"):
            image = provider.bake(machine, name, labels)
        image = _stored(provider, image, asked.tell)
        _note(ledger, image)
    return image


def _offer_of(held: LeaseStatus, offers: Sequence[Offer]) -> Offer:
    """The offer from which the machine was created."""
    exact = [one for one in offers if one.place.zone in ("", held.zone)]
    for offer in (*exact, *offers):
        if offer.instance_type == held.instance_type:
            return offer
    raise UsageError(
        f"{held.instance_type} is not offered any more.", next_command="orch down    # then: orch image bake"
    )


def _stored(provider: Provider, image: MachineImage, tell: Progress) -> MachineImage:
    """Wait until the cloud has stored the image. A list that does not show it yet lags; one that never does
    tells that it failed.
    """
    end, seen, why = time.monotonic() + STORING_S, image, "it was not stored within an hour"
    unlisted_from = time.monotonic() + provider.list_lag_s
    with doing(tell, f"Waiting until {image.name} is stored"):
        while seen.state is ImageState.PENDING and time.monotonic() < end:
            time.sleep(0.1 if clouds.is_here(image.provider) else _POLL_S)
            found = _named(provider, image.name)
            if found is not None:
                seen, unlisted_from = found, time.monotonic() + provider.list_lag_s
            elif time.monotonic() > unlisted_from:
                why = "the cloud does not list it any more"
                break
    if seen.state is ImageState.AVAILABLE:
        return seen
    why = str(seen.detail.get("why") or why).rstrip(".")
    raise ProviderError(Fault.UNKNOWN, f"{image.name} could not be stored: {why}.", code="ImageFailed")


def _named(provider: Provider, name: str) -> MachineImage | None:
    return next((image for image in provider.images({}) if image.name == name), None)


def _note(ledger: Ledger, image: MachineImage) -> None:
    facts = (image.name, image.provider, image.region, dict(image.labels), image.disk, image.size)
    ledger.record(ImageMade(*facts))


# ---------------------------------------------------------------- the end after a failure


@contextmanager
def _ending(asked: BakeRequest, provider: Provider) -> Iterator[None]:
    """If the block fails, delete what it made of the image, and the machine; the error says what is left."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        lease = asked.project.open_lease_of(asked.wanted.name)
        if lease is None:  # nothing was created, or `up` deleted it already
            if isinstance(error, OrchError):
                error.next_command = _again(error, asked)
            raise
        left = " ".join((*_unmade(lease, provider), _ended(asked, lease)))
        again = asked.command
        if isinstance(error, OrchError):
            error.exists, error.next_command = left, again
            raise
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(left, again) from None
        notice(asked.tell, left)
        raise


def _again(error: OrchError, asked: BakeRequest) -> str | None:
    """Return the next command of an error of `up`: where it would repeat `up`, the bake instead."""
    told = error.next_command or ""
    path = shlex.quote(str(Path(asked.wanted.path)))
    return asked.command if told in ("", f"orch up {path}") else told


def _unmade(lease: Lease, provider: Provider) -> Iterator[str]:
    """Delete what exists of an image whose making failed; yield a sentence if something is left."""
    if not lease.baking or lease.image is not None:
        return
    try:
        found = _named(provider, lease.baking)
        if found is not None:
            provider.delete_image(found)
            yield f"What existed of the image {found.name} was deleted."
    except OrchError as refused:
        yield (
            f"The image {lease.baking} may exist in part, and cost: {refused.message} "
            f"To delete it: orch image delete {lease.baking}."
        )


def _ended(asked: BakeRequest, lease: Lease) -> str:
    price = f"${lease.price:.2f}/h"
    try:
        report = down(lease.id, folder=asked.project.root, discard=True, progress=asked.tell)
    except (OrchError, OSError) as refused:
        why = refused.message if isinstance(refused, OrchError) else str(refused)
        told = f"The machine of {lease.id} could not be deleted: {why}"
        return f"{told} It may cost {price}: orch down {lease.id}."
    except KeyboardInterrupt:
        return f"The machine of {lease.id} may still be running, at {price}: orch down {lease.id}."
    if not report.machines:
        return "No machine is left; nothing costs money."
    return f"The machine was deleted, and cost ${report.cost:.2f}. Nothing is running."
