"""An image by its name on Google: a family's newest, one image, of this project or another; never Windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("google.cloud.compute_v1")

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.gcp.calls import Calls
from orchestrator.providers.gcp.clients import Clients

if TYPE_CHECKING:
    from tests.clouds.gcp_client import Google

DLVM = "deeplearning-platform-release"
FAMILY = "common-cu129-ubuntu-2204-nvidia-580"


@pytest.fixture
def calls(google: Google) -> Calls:
    return Calls(Clients(google.cloud.env))


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        (f"{DLVM}/{FAMILY}", f"{FAMILY}-v20261031"),
        (f"{DLVM}/{FAMILY}-v20260626", f"{FAMILY}-v20260626"),
        (f"projects/{DLVM}/global/images/family/{FAMILY}", f"{FAMILY}-v20261031"),
        (f"projects/{DLVM}/global/images/{FAMILY}-v20260626", f"{FAMILY}-v20260626"),
    ],
)
def test_a_family_and_an_image_by_name(calls: Calls, reference: str, name: str) -> None:
    found = calls.image(reference)
    assert (found.path, found.disk_gib) == (f"projects/{DLVM}/global/images/{name}", 50)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (f"{DLVM}/no-such", "no image"),
        (FAMILY, "no image"),
        (f"projects/{DLVM}/global/images/{FAMILY}", "no image"),
        ("windows-cloud/windows-2022", "runs Windows"),
    ],
)
def test_what_is_not_there_or_is_no_linux_is_refused(calls: Calls, reference: str, words: str) -> None:
    with pytest.raises(ProviderError, match=words) as error:
        calls.image(reference)
    assert error.value.fault is Fault.INVALID
