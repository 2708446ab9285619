"""All stores of a process share the client of their bucket, until what it was made of changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

boto3 = pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from orchestrator.storage.s3_client import connected  # noqa: E402


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def buckets(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(credentials("one"))
    for bucket in ("shared", "other"):
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=bucket)


def credentials(key: str) -> str:
    return f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"


def key() -> str:
    return str(connected("s3://shared", "shared").session.get_credentials().access_key)


def test_one_client_for_a_bucket() -> None:
    made = connected("s3://shared", "shared")
    assert connected("s3://shared", "shared") is made
    assert connected("s3://other", "other") is not made


def test_new_credentials_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert key() == "one"
    (tmp_path / ".aws/credentials").write_text(credentials("another"))
    assert key() == "another"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "variable")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert key() == "variable"


def test_another_endpoint_is_another_client(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = connected("s3://shared", "shared")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint.replace("127.0.0.1", "localhost"))
    assert connected("s3://shared", "shared").client.meta.endpoint_url != made.client.meta.endpoint_url


def test_a_forked_process_has_connections_of_its_own() -> None:
    made = connected("s3://shared", "shared")
    child = os.fork()
    if child == 0:
        os._exit(3 if connected("s3://shared", "shared") is made else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
