"""The disk types of Compute Engine from which a machine can boot, with the prices of us-central1.

Limits: the pages on Persistent Disk and on Hyperdisk of the Compute Engine documentation. Prices: Google's
price list of 2026.
"""

from orchestrator.model.disks import DiskKind, DiskMarket, Range

_HYPERDISK_ONLY = "a4|a4x|c4|c4a|c4d|g4|h4d|m4|n4|n4a|n4d|x4"
_BOTH = "a3|c3|c3d|h3|m1|m2|m3"
_PERSISTENT = rf"(?!(?:{_HYPERDISK_ONLY})-|a3-ultragpu-)"
_EXTREME = "(?:m1|m2|m3|n2)-"
_HYPERDISK = f"(?:{_HYPERDISK_ONLY}|{_BOTH})-"
_SIZES = Range(10, 65536)

MARKET = DiskMarket(
    kinds=(
        DiskKind("pd-balanced", _SIZES, 0.10, types=_PERSISTENT),
        DiskKind(
            "hyperdisk-balanced",
            _SIZES,
            0.08,
            iops=Range(3000, 160000),
            throughput=Range(140, 2400),
            iops_per_gib=500,
            iops_per_mib=4,
            included_iops=3000,
            included_throughput=140,
            usd_iops=0.005,
            usd_throughput=0.04,
            types=_HYPERDISK,
        ),
        DiskKind("pd-ssd", _SIZES, 0.17, types=_PERSISTENT),
        DiskKind("pd-standard", _SIZES, 0.04, types=rf"(?!(?:a3|c3|c3d|g2|h3|m3|t2a)-){_PERSISTENT}"),
        DiskKind(
            "pd-extreme",
            Range(500, 65536),
            0.125,
            iops=Range(2500, 120000),
            needs_iops=True,
            usd_iops=0.065,
            types=_EXTREME,
        ),
    ),
    priced_in="us-central1",
)
