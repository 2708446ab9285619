"""Buckets of the emulated clouds, and credentials here that can sign for them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


def new_bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The url of a new bucket of the cloud that the test is given, "s3" or "gs"."""
    cloud = request.getfixturevalue({"s3": "shared_aws", "gs": "shared_google"}[request.param])
    for name, value in cloud.env.items():
        monkeypatch.setenv(name, value)
    if request.param == "gs":
        key = tmp_path / "account.json"
        account, public = service_account()
        key.write_text(json.dumps({**account, "token_uri": f"{cloud.url}/token"}))
        cloud.settings(signers={account["client_email"]: public})
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
        _ask_no_server_of_google(monkeypatch)
    bucket = f"bucket-{os.urandom(6).hex()}"
    _make(request.param, cloud, bucket)
    return f"{request.param}://{bucket}"


def _ask_no_server_of_google(monkeypatch: pytest.MonkeyPatch) -> None:
    """google-auth asks one, beside its work, where a service account may be used."""
    from google.auth.credentials import CredentialsWithRegionalAccessBoundary as Asking

    monkeypatch.setattr(Asking, "_is_regional_access_boundary_lookup_required", lambda _: False)


def _make(scheme: str, cloud: Any, bucket: str) -> None:
    if scheme == "s3":
        cloud.client("s3").create_bucket(Bucket=bucket)
        return
    from google.cloud import storage

    storage.Client().create_bucket(bucket)


def service_account() -> tuple[dict[str, str], str]:
    """A service account with a key of its own, and the public half of it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    account = {
        "type": "service_account",
        "project_id": "orch-test",
        "private_key_id": "k",
        "private_key": private.decode(),
        "client_email": "signer@orch-test.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    return account, public.decode()
