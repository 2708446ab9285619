"""botocore's models of services, megabytes of JSON, parsed once in a process instead of once in a session."""

from __future__ import annotations

import functools

import boto3
from botocore.loaders import JSONFileLoader

_parsed = functools.cache(functools.partial(JSONFileLoader._load_file, JSONFileLoader()))
JSONFileLoader._load_file = lambda _self, path, opened: _parsed(path, opened)


def parse() -> None:
    """Now, for the forks of this process: those that each verb needs."""
    session = boto3.Session(aws_access_key_id="none", aws_secret_access_key="none", region_name="us-east-1")
    for service in ("ec2", "sts", "ssm"):
        session.client(service)
