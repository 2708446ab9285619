"""The conditional writes of S3, on which a lock can be built, as moto's server keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

boto3 = pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from botocore.exceptions import ClientError  # noqa: E402

RACERS = 16


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def client(endpoint: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


@pytest.fixture
def s3(endpoint: str) -> Any:
    made = client(endpoint)
    made.create_bucket(Bucket="locks")
    return made


def refused(call: Any, **arguments: Any) -> int:
    """The HTTP status with which a call is refused."""
    with pytest.raises(ClientError) as error:
        call(Bucket="locks", **arguments)
    return int(error.value.response["ResponseMetadata"]["HTTPStatusCode"])


def test_one_of_many_racers_wins(endpoint: str, s3: Any) -> None:
    clients = [client(endpoint) for _ in range(RACERS)]
    outcomes: dict[int, bool] = {}
    start = threading.Barrier(RACERS)

    def race(number: int) -> None:
        start.wait()
        try:
            clients[number].put_object(Bucket="locks", Key="race", Body=b"%d" % number, IfNoneMatch="*")
            outcomes[number] = True
        except ClientError as error:
            assert error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict")
            outcomes[number] = False

    threads = [threading.Thread(target=race, args=(number,)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == RACERS
    winners = [number for number, won in outcomes.items() if won]
    assert len(winners) == 1
    assert s3.get_object(Bucket="locks", Key="race")["Body"].read() == b"%d" % winners[0]


def test_only_what_was_read_is_replaced(s3: Any) -> None:
    first = s3.put_object(Bucket="locks", Key="state", Body=b"one")["ETag"]
    second = s3.put_object(Bucket="locks", Key="state", Body=b"two", IfMatch=first)["ETag"]
    assert refused(s3.put_object, Key="state", Body=b"three", IfMatch=first) == 412
    assert refused(s3.put_object, Key="state", Body=b"three", IfNoneMatch="*") == 412
    assert refused(s3.delete_object, Key="state", IfMatch=first) == 412
    assert s3.get_object(Bucket="locks", Key="state")["Body"].read() == b"two"
    s3.delete_object(Bucket="locks", Key="state", IfMatch=second)
    assert refused(s3.get_object, Key="state") == 404
