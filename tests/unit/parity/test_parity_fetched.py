"""Data sets that a library fetched into its cache: one file in each revision, and data."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.parity.opened import files_gap
from orchestrator.parity.places import named_alike

HUB = ".cache/huggingface/hub/datasets--me--tiny"


def facts(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"files": {"list": list(entries)}}


def fetched(inside: str, sha256: str, folder: str = HUB) -> dict[str, Any]:
    """As runtime.observe.files lists a file."""
    path = f"/home/u/{folder}/{inside}"
    facts = {"path": path, "sha256": sha256, "bytes": 9, "way": "python", "made": False, "cache": False}
    return {"name": f"~/{folder}/{inside}", "fetched": f"/home/u/{folder}", **facts}


@pytest.mark.parametrize(
    ("folder", "one", "other", "called"),
    [
        (HUB, f"snapshots/{'a' * 40}/en/t.csv", f"snapshots/{'b' * 40}/en/t.csv", "en/t.csv"),
        (
            ".cache/huggingface/datasets/me___tiny",
            f"default/0.0.0/{'a' * 40}/tiny-train.arrow",
            f"default/0.0.0/{'b' * 40}/tiny-train.arrow",
            "default/0.0.0/tiny-train.arrow",
        ),
    ],
)
def test_one_file_in_two_revisions_is_one_that_differs(
    folder: str, one: str, other: str, called: str
) -> None:
    a, b = named_alike(facts(fetched(one, "1", folder)), facts(fetched(other, "2", folder)))
    gap = files_gap(a, b)
    assert gap and (gap.kind, gap.name, gap.others) == ("content", f"~/{folder}/{called}", 0)
    again, _ = named_alike(a, b)
    assert again == a


def test_the_same_bytes_in_two_revisions_are_no_gap() -> None:
    sides = [facts(fetched(f"snapshots/{each * 40}/t.csv", "1")) for each in "ab"]
    assert files_gap(*named_alike(*sides)) is None


def test_two_revisions_in_one_run_stay_two_files() -> None:
    both = facts(fetched(f"snapshots/{'a' * 40}/t.csv", "1"), fetched(f"snapshots/{'b' * 40}/t.csv", "2"))
    one = facts(fetched(f"snapshots/{'a' * 40}/t.csv", "1"))
    gap = files_gap(*named_alike(both, one))
    assert gap and (gap.kind, gap.name) == ("missing", f"~/{HUB}/snapshots/{'b' * 40}/t.csv")


def test_what_an_older_recording_says_of_a_cache_stands() -> None:
    old = {"name": f"~/{HUB}/refs/main", "path": "/h/refs/main", "sha256": "1", "bytes": 9}
    assert files_gap(facts(old), facts({**old, "sha256": "2"})) is None
