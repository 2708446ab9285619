"""What can be set of the test cloud: delays, limits, and who may do what. Seconds and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

ACCOUNT = "123456789012"
ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
DEFAULT_REGION = "us-east-1"
USER = "orch-tester"


@dataclass
class Settings:
    """Every field can be given to `running(...)`, as `--set name=JSON`, or by POST /_test/settings."""

    visible_after_s: float = 0.2  # RunInstances returned: until Describe* knows the instance
    running_after_s: float = 0.3  # at least so long pending
    gone_after_s: float = 0.2  # at least so long shutting-down
    image_after_s: float = 0.3  # how long an image is pending
    listed_after_end_s: float = 3600.0  # how long the terminated stay listed
    console_after_s: float = 0.3  # how old console text must be before GetConsoleOutput has it
    token_valid_s: float = 86400.0  # how long after an instance's end its ClientToken is remembered
    machines: bool = True  # False: instances that run nothing, for tests of the API alone
    machine_cpus: int = 64  # upper bounds of the real machines behind instances
    machine_memory: int = 8 << 30
    machine_disk: int = 8 << 30
    machine_lifetime_s: float = 6 * 3600.0  # they end by themselves then, whatever becomes of this server
    quotas: dict[str, float] = field(default_factory=dict)  # by code, or "region/code": {"L-DB2E81BA": 0}
    sold_out: list[str] = field(default_factory=list)  # "type@zone" with wildcards: "g4dn.*@us-east-1a"
    crowded: dict[str, int] = field(default_factory=dict)  # by zone, for how many a placement group has room
    reservations: dict[str, Any] = field(default_factory=dict)  # by id: {"type", "zone", "count", "kind"}
    policy: dict[str, Any] | None = None  # the caller's IAM policy; None allows everything
    groups: list[str] = field(default_factory=list)  # security groups open for ssh, there from the start
    cloudwatch_minute_s: float = 60.0  # how long a minute of its alarms takes here
    free_plan: bool = False  # the account is on the Free plan: few types can be launched
    clock_ahead_s: float = 0.0  # by how much its clock is ahead where signatures expire
    access_key: str = ACCESS_KEY

    def change(self, values: Mapping[str, Any]) -> None:
        """Set some; ValueError for a name that is not one."""
        known = {item.name for item in fields(self)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"no such setting: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        for name, value in values.items():
            setattr(self, name, value)


SETTINGS = Settings()
"""Those of this server."""
