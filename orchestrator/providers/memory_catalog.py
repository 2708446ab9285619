"""The offers of the emulated cloud inside this process."""

from __future__ import annotations

from orchestrator.model import Need, Offer

GIB = 1 << 30

CATALOG = (
    Offer("memory", "small", "r1", "r1-a", 2, 4 * GIB, "x86_64", 0.05),
    Offer("memory", "small", "r1", "r1-b", 2, 4 * GIB, "x86_64", 0.06),
    Offer("memory", "large", "r1", "r1-a", 8, 32 * GIB, "x86_64", 0.40),
    Offer("memory", "small", "r1", "r1-a", 2, 4 * GIB, "x86_64", 0.02, spot=True),
    Offer("memory", "gpu", "r1", "r1-a", 4, 16 * GIB, "x86_64", 0.53, False, "T4", 1, 16 * GIB),
)


def serves(offer: Offer, need: Need) -> bool:
    """Return whether the offer satisfies the need."""
    wanted = need.accelerator
    return (
        (need.cpus is None or need.cpus.admits(offer.cpus))
        and (need.memory is None or need.memory.admits(offer.memory))
        and offer.spot == need.spot
        and need.is_in(offer.region)
        and need.zone in (None, offer.zone)
        and need.arch in (None, offer.arch)
        and (need.max_price is None or offer.price <= need.max_price)
        and (wanted is None or wanted.name in (None, offer.accelerator))
        and (wanted is None or wanted.count.value <= offer.accelerator_count)
        and (wanted is None or wanted.memory is None or wanted.memory.admits(offer.gpu_memory))
    )
