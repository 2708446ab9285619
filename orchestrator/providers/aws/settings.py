"""Environment variables for AWS, apart from those that boto3 reads.

boto3 reads AWS_PROFILE, AWS_REGION, AWS_DEFAULT_REGION, the credentials, and AWS_ENDPOINT_URL with its
forms for one service (AWS_ENDPOINT_URL_EC2, _SSM, _STS).

ORCH_AWS_REGIONS          regions to use and to look for machines in, comma separated; without it those of
                          the catalog and the one of AWS_REGION, as far as the account has them enabled;
                          `all`: every region that the account has enabled
ORCH_AWS_SUBNET           subnets, comma separated; the one in the machine's zone is used
ORCH_AWS_SECURITY_GROUP   security groups, comma separated; without it the one called `orch-ssh`
ORCH_AWS_ADDRESS          `public` (default); `private` for machines without a public address, reached at
                          their private one; `ssm` for the same, reached by a tunnel of Session Manager
ORCH_AWS_INSTANCE_PROFILE instance profile of each machine, which Session Manager may need; default: none
ORCH_AWS_IMAGE            image: `ami-…`, `ssm:/path/of/parameter`, or a pattern of names
ORCH_AWS_USER             login user of that image, if the image's name does not show it
ORCH_AWS_HOST_KEY         `injected` (default): a one-use key goes with the machine and is replaced at first
                          contact; `console`: the machine's own, read from its console output
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.errors import Fault, ProviderError

EVERYWHERE = "all"
PUBLIC, PRIVATE, SSM = "public", "private", "ssm"


@dataclass(frozen=True)
class Settings:
    """The settings, see the module. Empty tuples and None mean that the variable is not set."""

    regions: tuple[str, ...] = ()
    everywhere: bool = False
    subnets: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    address: str = PUBLIC
    instance_profile: str | None = None
    image: str | None = None
    user: str | None = None
    inject: bool = True

    @property
    def public(self) -> bool:
        return self.address == PUBLIC


def read(environ: Mapping[str, str]) -> Settings:
    """Read the settings. Raises ProviderError(INVALID) for an invalid value."""
    regions = _words(environ, "ORCH_AWS_REGIONS")
    return Settings(
        regions=() if regions == (EVERYWHERE,) else regions,
        everywhere=regions == (EVERYWHERE,),
        subnets=_words(environ, "ORCH_AWS_SUBNET"),
        groups=_words(environ, "ORCH_AWS_SECURITY_GROUP"),
        address=_choice(environ, "ORCH_AWS_ADDRESS", PUBLIC, PRIVATE, SSM),
        instance_profile=environ.get("ORCH_AWS_INSTANCE_PROFILE") or None,
        image=environ.get("ORCH_AWS_IMAGE") or None,
        user=environ.get("ORCH_AWS_USER") or None,
        inject=_choice(environ, "ORCH_AWS_HOST_KEY", "injected", "console") == "injected",
    )


def _words(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word for part in environ.get(name, "").split(",") if (word := part.strip()))


def _choice(environ: Mapping[str, str], name: str, *known: str) -> str:
    """Return the value of a variable; the first of the choices if it is not set."""
    value = environ.get(name) or known[0]
    if value not in known:
        either = " or ".join((", ".join(known[:-1]), known[-1]))
        raise ProviderError(Fault.INVALID, f"{name} is {value!r}; it must be {either}.", code="BadSetting")
    return value
