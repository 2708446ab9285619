"""The boto3 client of a bucket, shared by all stores of a process: it takes longer to make than a request."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import StorageError, StorageFault

from .bucket import Anything
from .s3_errors import asking

_ANONYMOUS_REGION = "us-east-1"
_READ = re.compile(r"AWS_.*|BOTO_CONFIG|HOME|REQUESTS_CA_BUNDLE|(?i:[a-z]+_proxy)")
"""Variables from which boto3 takes credentials, endpoints, certificates and proxies."""
_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}


@dataclass(frozen=True)
class S3Connection:
    """A session of boto3 and its client, which signs for the region of its bucket."""

    session: Any
    client: Any


def connected(url: str, bucket: str) -> S3Connection:
    """Return the connection to a bucket: a new one where variables or files of the credentials have changed,
    and in a process that was forked. Raises StorageError.
    """
    return _connected(url, bucket, (os.getpid(), _variables(), _stamps()))


def _variables() -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in os.environ.items() if _READ.fullmatch(name)))


def _stamps() -> tuple[tuple[int, int, int] | None, ...]:
    places = (Path(os.environ.get(name) or place) for name, place in _FILES.items())
    return tuple(_stamp(place.expanduser()) for place in places)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@functools.lru_cache(maxsize=32)
def _connected(url: str, bucket: str, _read: object) -> S3Connection:
    try:
        import boto3
    except ImportError as error:
        raise StorageError(
            StorageFault.UNKNOWN,
            "boto3, the client for S3, is not installed.",
            next_command="pip install 'orch-train[aws]'",
        ) from error
    session = boto3.Session()
    region = session.region_name or _ANONYMOUS_REGION
    client = _client(session, region)
    own = region_of(client, url, bucket)
    return S3Connection(session, client if own in (None, region) else _client(session, own))


def _client(session: Any, region: str) -> Any:
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": 1},
        signature_version="s3v4",
        connect_timeout=10,
        read_timeout=60,
        max_pool_connections=16,
        user_agent_extra="orch",
        s3={"us_east_1_regional_endpoint": "regional"},
    )
    return session.client("s3", region_name=region, config=config)


def region_of(client: Any, url: str, bucket: str) -> str | None:
    """Return the region of a bucket; None if the server does not name one. A response that denies access
    names it too.
    """
    from botocore.exceptions import ClientError

    with asking(url, bucket, "", Anything()):
        try:
            answer = client.head_bucket(Bucket=bucket)
        except ClientError as error:
            answer = error.response
            if answer["ResponseMetadata"]["HTTPStatusCode"] not in (301, 400, 403):
                raise
    told = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("x-amz-bucket-region")
    return told if told and re.fullmatch(r"[a-z0-9-]{1,40}", told) else None
