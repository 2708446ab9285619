"""Data in buckets of both emulated clouds: fetched by the machine, pinned for its lease, sampled here."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.errors import Missing, OrchError, StorageError, SyncError, UsageError
from orchestrator.hosts.here import HereHost
from orchestrator.leases.data_ready import require_data
from orchestrator.model import Silent
from orchestrator.profile import load
from orchestrator.session import buckets
from orchestrator.storage import Store, open_store
from orchestrator.sync import ObjectRefused, fetch
from tests.clouds.signing import new_bucket
from tests.unit import here_cloud
from tests.unit.far_side import agent_at

SCRIPT = """
import os, pathlib
top = pathlib.Path("images")
found = sorted((str(p.relative_to(top)), p.read_bytes()) for p in top.rglob("*") if p.is_file())
pathlib.Path("sum.txt").write_text(repr(found))
"""


@pytest.fixture(params=["s3", "gs"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    """A prefix of a new bucket, with three objects."""
    made = open_store(f"{new_bucket(request, monkeypatch, tmp_path)}/data/images")
    for key, content in {"a/1.bin": b"one" * 999, "a/ü 2.bin": b"two", "b.bin": b""}.items():
        made.put(key, content)
    return made


def profile_of(folder: Path, store: Store, more: str = "") -> Path:
    return here_cloud.project(folder, SCRIPT, more=f"data:\n  - source: {store.url}\n{more}")


def test_a_run_reads_what_its_machine_fetched_and_the_next_one_sees_the_same_bytes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    folder = tmp_path / "p"
    orch.up(profile_of(folder, store), folder=folder)
    try:
        first = orch.train(run_id="one", folder=folder)
        assert (folder / "runs/one/outputs/sum.txt").read_text() == repr(
            [("a/1.bin", b"one" * 999), ("a/ü 2.bin", b"two"), ("b.bin", b"")]
        )
        assert first.data is not None and (first.data["files"], first.data["bytes"]) == (3, 3000)

        store.put("a/ü 2.bin", b"TWO")
        store.put("c.bin", b"new")
        store.delete("b.bin")
        with pytest.raises(buckets.DataChanged) as caught:
            orch.train(run_id="two", folder=folder)
        refused = caught.value
        assert (refused.changed, refused.added, refused.removed) == (["a/ü 2.bin"], ["c.bin"], ["b.bin"])

        last = orch.train(run_id="two", folder=folder, new_data=True)
        assert "b'TWO'" in (folder / "runs/two/outputs/sum.txt").read_text()
        assert last.data is not None and last.data["digest"] != first.data["digest"]
        _no_key_is_below(cloud.root)
    finally:
        orch.down(folder=folder)


def _no_key_is_below(folder: Path) -> None:
    """The credentials of this process are in no file of the machine."""
    names = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    secrets = [os.environ[name].encode() for name in names if os.environ.get(name)]
    credentials = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if credentials:
        secrets.append(Path(credentials).read_bytes())
    assert secrets
    looked = 0
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20:
            looked += 1
            assert not any(secret in path.read_bytes() for secret in secrets), path
    assert looked


def test_the_same_bytes_written_again_are_no_change(store: Store, tmp_path: Path) -> None:
    pin = buckets.pinned(tmp_path / "pin", store.url)
    store.put("a/1.bin", b"one" * 999)
    again = buckets.pinned(tmp_path / "pin", store.url)
    assert [(each.key, each.checksum) for each in again.objects] == [
        (each.key, each.checksum) for each in pin.objects
    ]


def test_an_object_that_changes_after_it_was_listed_is_named(store: Store, tmp_path: Path) -> None:
    pin = buckets.pinned(tmp_path / "pin", store.url)
    store.put("a/1.bin", b"other")
    with pytest.raises(ObjectRefused) as caught:
        fetch(HereHost(), agent_at(tmp_path / "far"), pin.objects, "data-0", buckets.linker(pin))
    assert caught.value.key == "a/1.bin"
    assert caught.value.fault in ("changed", "missing")


def test_a_damaged_pin_is_no_new_pin(store: Store, tmp_path: Path) -> None:
    buckets.pinned(tmp_path / "pin", store.url)
    (tmp_path / "pin").write_text('{"source":')
    with pytest.raises(SyncError) as caught:
        buckets.pinned(tmp_path / "pin", store.url)
    assert caught.value.next_command
    assert len(buckets.pinned(tmp_path / "pin", store.url, accept=True).objects) == 3


def test_only_the_sample_comes_here_and_what_is_no_longer_of_it_goes(store: Store, tmp_path: Path) -> None:
    profile = load(profile_of(tmp_path / "p", store, "    sample: ['a/*']\n"))
    (tree,) = profile.data
    buckets.mirror(tree, buckets.listed(tree.bucket), Silent())
    assert (tree.source / "a" / "ü 2.bin").read_bytes() == b"two"
    assert not (tree.source / "b.bin").exists()
    (tree.source / "a" / "stray").write_bytes(b"x")
    store.put("a/ü 2.bin", b"TWO")
    buckets.mirror(replace(tree, sample=("a/ü*",)), buckets.listed(tree.bucket), Silent())
    assert {path.name: path.read_bytes() for path in (tree.source / "a").iterdir()} == {"ü 2.bin": b"TWO"}
    with pytest.raises(UsageError):
        buckets.mirror(replace(tree, sample=("nothing*",)), buckets.listed(tree.bucket), Silent())


def test_one_object_is_one_file(store: Store, tmp_path: Path) -> None:
    source = f"{store.url}/a/1.bin"
    profile = load(here_cloud.project(tmp_path / "p", SCRIPT, more=f"data:\n  - source: {source}\n"))
    (tree,) = profile.data
    assert tree.target == "1.bin"
    pin = buckets.listed(source)
    buckets.mirror(tree, pin, Silent())
    assert tree.source.read_bytes() == b"one" * 999
    agent = agent_at(tmp_path / "far")
    fetch(HereHost(), agent, pin.objects, "data-0", buckets.linker(pin), single=pin.single)
    assert (Path(agent.base) / "trees" / "data-0").read_bytes() == b"one" * 999


def test_what_would_stop_the_first_run_stops_before_anything_is_rented(store: Store, tmp_path: Path) -> None:
    def refusal(source: str, *overrides: str) -> OrchError:
        path = here_cloud.project(tmp_path / "p", SCRIPT, more=f"data:\n  - source: {source}\n")
        with pytest.raises(OrchError) as caught:
            require_data(load(path, overrides=overrides))
        return caught.value

    require_data(load(profile_of(tmp_path / "p", store)))
    scheme = store.url.partition(":")[0]
    assert isinstance(refusal(f"{scheme}://no-such-bucket-{os.urandom(4).hex()}/x"), StorageError)
    assert isinstance(refusal(f"{store.url}/nothing/below"), (SyncError, Missing))
    store.put("large", b"x" * (2 << 20))
    small = load(profile_of(tmp_path / "p", store))
    with pytest.raises(UsageError):
        require_data(replace(small, resources=replace(small.resources, disk=2 << 20)))


@pytest.mark.parametrize("store", ["gs"], indirect=True)
def test_without_signed_links_the_objects_come_by_way_of_this_computer(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    folder = tmp_path / "p"
    orch.up(profile_of(folder, store), folder=folder)
    signed = orch.train(run_id="signed", folder=folder)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    require_data(load(folder / "orch.yaml"))
    unsigned = orch.train(run_id="unsigned", folder=folder)
    assert (folder / "runs/unsigned/outputs/sum.txt").read_text() == repr(
        [("a/1.bin", b"one" * 999), ("a/ü 2.bin", b"two"), ("b.bin", b"")]
    )
    assert unsigned.data == signed.data
    monkeypatch.setattr(buckets, "LARGEST_HERE", 10)  # too much to go through somebody's home line
    with pytest.raises(buckets.CannotSign):
        require_data(load(folder / "orch.yaml"))
    orch.down(folder=folder)
