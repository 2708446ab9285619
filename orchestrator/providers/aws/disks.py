"""The types of EBS volumes from which an instance can boot, with the prices of us-east-1.

Limits: the EBS user guide, "Amazon EBS volume types"; gp3 as of September 2025: 64 TiB, 80,000 IOPS, 2,000
MiB/s (summary: https://jayendrapatil.com/tag/ebs-io1/). Prices: the price list of EBS, 2026.
"""

from orchestrator.model.disks import DiskKind, DiskMarket, Range

MARKET = DiskMarket(
    kinds=(
        DiskKind(
            "gp3",
            Range(1, 65536),
            0.08,
            iops=Range(3000, 80000),
            throughput=Range(125, 2000),
            iops_per_gib=500,
            iops_per_mib=4,
            included_iops=3000,
            included_throughput=125,
            usd_iops=0.005,
            usd_throughput=0.04,
        ),
        DiskKind("gp2", Range(1, 16384), 0.10),
        DiskKind(
            "io2",
            Range(4, 65536),
            0.125,
            iops=Range(100, 256000),
            needs_iops=True,
            iops_per_gib=1000,
            usd_iops=0.065,
        ),
        DiskKind(
            "io1",
            Range(4, 16384),
            0.125,
            iops=Range(100, 64000),
            needs_iops=True,
            iops_per_gib=50,
            usd_iops=0.065,
        ),
    ),
    priced_in="us-east-1",
)
