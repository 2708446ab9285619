"""The EC2 quotas that apply to a machine: names, codes, and where to request an increase."""

from __future__ import annotations

import re
from dataclasses import dataclass

_STANDARD = frozenset("acdhimrtz")


@dataclass(frozen=True)
class Quota:
    """A quota of EC2. `code` is "" if AWS has one quota per resource that only the console lists."""

    name: str
    code: str
    service: str = "ec2"

    def title(self) -> str:
        return f"“{self.name}” ({self.code})" if self.code else f"“{self.name}”"

    def address(self, region: str) -> str:
        """Return the console page that shows and raises the quota."""
        page = f"https://{region}.console.aws.amazon.com/servicequotas/home/services/{self.service}/quotas"
        return f"{page}/{self.code}" if self.code else page

    def request(self, region: str) -> str | None:
        """Return the command that requests an increase; the user chooses the value."""
        if not self.code:
            return None
        return (
            f"aws service-quotas request-service-quota-increase --region {region} "
            f"--service-code {self.service} --quota-code {self.code} --desired-value VCPUS"
        )


_ON_DEMAND = {
    "standard": Quota("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "L-1216C47A"),
    "g": Quota("Running On-Demand G and VT instances", "L-DB2E81BA"),
    "p": Quota("Running On-Demand P instances", "L-417A185B"),
    "inf": Quota("Running On-Demand Inf instances", "L-1945791B"),
    "trn": Quota("Running On-Demand Trn instances", "L-2C3B7624"),
    "dl": Quota("Running On-Demand DL instances", "L-6E869C2A"),
    "x": Quota("Running On-Demand X instances", "L-7295265B"),
    "f": Quota("Running On-Demand F instances", "L-74FC7D96"),
}
_SPOT = {
    "standard": Quota("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", "L-34B43A08"),
    "g": Quota("All G and VT Spot Instance Requests", "L-3819A6DF"),
    "p": Quota("All P4, P3 and P2 Spot Instance Requests", "L-7212CCBC"),
    "p5": Quota("All P5 Spot Instance Requests", "L-C4BD4855"),
    "inf": Quota("All Inf Spot Instance Requests", "L-B5D1601B"),
    "trn": Quota("All Trn Spot Instance Requests", "L-6B0D517C"),
    "x": Quota("All X Spot Instance Requests", "L-E3A00192"),
    "f": Quota("All F Spot Instance Requests", "L-88CF9481"),
}
_VOLUMES = Quota("Storage for General Purpose SSD (gp3) volumes, in TiB", "L-7A658B76", "ebs")
_BY_CODE = {
    "VolumeLimitExceeded": _VOLUMES,
    "NetworkInterfaceLimitExceeded": Quota("Network interfaces per Region", "L-DF5E4CA3", "vpc"),
    "PlacementGroupLimitExceeded": Quota("Placement groups per Region", ""),
}


def quota(instance_type: str, *, spot: bool, code: str = "") -> Quota:
    """Return the quota for machines of this type, or the one that the error `code` is about."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    table = _SPOT if spot else _ON_DEMAND
    family = instance_type.partition(".")[0]
    for name in (re.sub(r"[a-z-]*$", "", family), _letters(family)):
        if name in table:
            return table[name]
    return table.get(_group(_letters(family)), Quota(f"Running {family or 'EC2'} instances", ""))


def _letters(family: str) -> str:
    return re.sub(r"\d.*", "", family)


def _group(letters: str) -> str:
    if letters in ("g", "gr", "vt"):
        return "g"
    if letters == "u" or letters.startswith(("hpc", "mac")):
        return ""
    return "standard" if letters[:1] in _STANDARD else ""
