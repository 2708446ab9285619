"""What the environment says about AWS, besides what boto3 reads of it by itself.

boto3 reads AWS_PROFILE, AWS_REGION, AWS_DEFAULT_REGION, the credentials, and AWS_ENDPOINT_URL with its
forms for one service (AWS_ENDPOINT_URL_EC2, _SSM, _STS).

ORCH_AWS_REGIONS          regions to use and to look for machines in, comma separated; without it those of
                          the catalog and the one of AWS_REGION, as far as the account has them enabled
ORCH_AWS_SUBNET           subnets, comma separated; the one of the machine's zone is taken
ORCH_AWS_SECURITY_GROUP   security groups, comma separated; without it the one called `orch-ssh`
ORCH_AWS_ADDRESS          `public` (default), or `private` for machines without a public address
ORCH_AWS_IMAGE            image: `ami-…`, `ssm:/path/of/parameter`, or a pattern of names
ORCH_AWS_USER             who logs in there, where the image's name does not tell
ORCH_AWS_HOST_KEY         `injected` (default): a one-use key goes with the machine and is replaced at first
                          contact; `console`: the machine's own, read from its console output
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.errors import Fault, ProviderError


@dataclass(frozen=True)
class Settings:
    """See the module. Empty tuples and None: not said."""

    regions: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    public: bool = True
    image: str | None = None
    user: str | None = None
    inject: bool = True


def read(environ: Mapping[str, str]) -> Settings:
    """Raises ProviderError(INVALID) for a value that is none."""
    return Settings(
        regions=_words(environ, "ORCH_AWS_REGIONS"),
        subnets=_words(environ, "ORCH_AWS_SUBNET"),
        groups=_words(environ, "ORCH_AWS_SECURITY_GROUP"),
        public=_choice(environ, "ORCH_AWS_ADDRESS", "public", "private"),
        image=environ.get("ORCH_AWS_IMAGE") or None,
        user=environ.get("ORCH_AWS_USER") or None,
        inject=_choice(environ, "ORCH_AWS_HOST_KEY", "injected", "console"),
    )


def _words(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word for part in environ.get(name, "").split(",") if (word := part.strip()))


def _choice(environ: Mapping[str, str], name: str, usual: str, other: str) -> bool:
    """Whether it is the usual one."""
    value = environ.get(name) or usual
    if value not in (usual, other):
        raise ProviderError(
            Fault.INVALID, f"{name} is {value!r}; it can be {usual} or {other}.", code="BadSetting"
        )
    return value == usual
