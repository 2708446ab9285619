"""boto3 clients, one for each region and service, and the translation of their errors."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.aws.home import DEFAULT
from orchestrator.providers.aws.settings import Settings

HOME = DEFAULT
"""The region for requests that concern no single region, if the environment names none."""

_CONNECT_S = 10
_READ_S = 60


class Clients:
    """Create boto3 clients; boto3 finds credentials, profile and endpoints.

    boto3's own retries are off, because only the caller knows which calls may be repeated.
    """

    def __init__(self, settings: Settings, regions: Callable[[], tuple[str, ...]]) -> None:
        self._settings = settings
        self._catalog_regions = regions
        self._lock = threading.Lock()
        self._made: dict[tuple[str, str], Any] = {}

    @functools.cached_property
    def _session(self) -> Any:
        import boto3

        return boto3.Session()

    def client(self, service: str, region: str) -> Any:
        """Return the client of a service in a region. Creating one is not thread-safe, so it is done
        under a lock.
        """
        import botocore.config

        with self._lock:
            if (service, region) not in self._made:
                config = botocore.config.Config(
                    retries={"total_max_attempts": 1},
                    connect_timeout=_CONNECT_S,
                    read_timeout=_READ_S,
                    max_pool_connections=16,
                    user_agent_extra="orch",
                )
                made = self._session.client(service, region_name=region, config=config)
                made.meta.events.register("after-call", _require_answer)
                made._make_api_call = _readable(made._make_api_call)
                self._made[service, region] = made
            return self._made[service, region]

    def ec2(self, region: str) -> Any:
        return self.client("ec2", region)

    @property
    def home(self) -> str:
        """Return the first region of ORCH_AWS_REGIONS, else the one boto3 is configured for, else
        us-east-1.
        """
        if self._settings.regions:
            return self._settings.regions[0]
        return str(self._session.region_name or HOME)

    @functools.cached_property
    def regions(self) -> tuple[str, ...]:
        """Return every region in which a machine of this account may be, from one request for the enabled
        regions.
        """
        if self._settings.regions:
            return self._settings.regions
        wanted = {*self._catalog_regions(), self.home}
        if wanted == {self.home} and not self._settings.everywhere:
            return (self.home,)
        with asking(self, self.home):
            enabled = {
                found["RegionName"] for found in self.ec2(self.home).describe_regions().get("Regions", ())
            }
        if self._settings.everywhere:
            return tuple(sorted(enabled)) or (self.home,)
        return tuple(sorted(wanted & enabled)) or (self.home,)

    def require_region(self, region: str) -> None:
        """Refuse a region in which `list` would not look for the machine."""
        if region not in self.regions:
            raise ProviderError(
                Fault.INVALID,
                f"The region {region} is not one of those in use: {', '.join(self.regions)}.",
                code="RegionNotInUse",
                next_command=f"export ORCH_AWS_REGIONS={','.join((*self.regions, region))}",
            )

    def identity(self) -> str:
        """Return the caller's ARN for messages; "" if it is not known."""
        try:
            return str(self.client("sts", self.home).get_caller_identity()["Arn"])
        except Exception:
            return ""


def _require_answer(http_response: Any, parsed: Any, model: Any, **_: Any) -> None:
    """Raise NotAnAnswer for a web page or an answer without any field of the operation. An empty list is
    an answer.
    """
    from orchestrator.providers.aws.faults import NotAnAnswer

    if http_response.status_code >= 300:
        return
    kind = str(http_response.headers.get("content-type", "none"))
    metadata = parsed.get("ResponseMetadata", {})
    if "html" in kind.lower() or (len(parsed) < 2 and not metadata.get("RequestId")):
        raise NotAnAnswer(operation=model.name, kind=kind)


def _readable(call: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """Wrap a parser of botocore: it raises NotAnAnswer if the XML is not an answer of the operation."""

    def asked(operation: str, parameters: Any) -> Any:
        from orchestrator.providers.aws.faults import NotAnAnswer

        try:
            return call(operation, parameters)
        except LookupError as error:
            raise NotAnAnswer(operation=operation, kind="not the operation's XML") from error

    return asked


@contextmanager
def asking(
    clients: Clients, region: str, *, instance_type: str = "", zone: str = "", spot: bool = False
) -> Iterator[None]:
    """Translate what boto3 raises in the block to ProviderError."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        raise translated(error, clients, region, instance_type=instance_type, zone=zone, spot=spot) from error


def translated(
    error: BaseException, clients: Clients, region: str, *, instance_type: str, zone: str, spot: bool
) -> ProviderError:
    from botocore.exceptions import ClientError

    from orchestrator.providers.aws.faults import Asked, classify, provider_error

    refused = classify(error) is Fault.AUTH and isinstance(error, ClientError)
    identity = clients.identity() if refused else ""
    return provider_error(error, Asked(region, instance_type, zone, spot, identity))
