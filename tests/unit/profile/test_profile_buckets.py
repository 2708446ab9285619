"""Data of a profile that lie in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ProfileError
from orchestrator.profile import Profile, load
from tests.unit import here_cloud


def loaded(folder: Path, *lines: str) -> Profile:
    more = "data:\n" + "".join(
        f"{'  - ' if not number else '    '}{line}\n" for number, line in enumerate(lines)
    )
    return load(here_cloud.project(folder, "", more=more), files=True)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("s3://my-bucket/some/images", "images"),
        ("s3://my-bucket/some/images/", "images"),
        ("gs://my-bucket/train.tfrecord", "train.tfrecord"),
        ("gs://my-bucket", "my-bucket"),
    ],
)
def test_a_source_in_a_bucket_is_found_under_its_own_name(tmp_path: Path, source: str, target: str) -> None:
    (tree,) = loaded(tmp_path, f"source: {source}").data
    assert (tree.bucket, tree.target) == (source, target)
    assert tree.source.is_relative_to(tmp_path / ".orch")


def test_two_sources_lie_apart_here(tmp_path: Path) -> None:
    one, other = (loaded(tmp_path, f"source: s3://my-bucket/{name}/images").data[0] for name in "ab")
    assert one.source != other.source


@pytest.mark.parametrize(
    "lines",
    [
        ("source: s3://", "target: x"),
        ("source: s3://My_Bucket/x",),
        ("source: s3://my-bucket//x",),
        ("source: s3://my-bucket/../x",),
        ("source: gs://b/x",),
        ("source: https://my-bucket.s3.amazonaws.com/x",),
        ("source: azure://my-bucket/x",),
        ("source: s3://my-bucket/x", "prepare: python make.py"),
        ("source: .", "target: x", "sample: ['*.csv']"),
        ("source: s3://my-bucket/x", "sample: ['../*']"),
        ("source: s3://my-bucket/x", "sample: [/etc/passwd]"),
    ],
)
def test_what_names_no_object_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(ProfileError):
        loaded(tmp_path, *lines)
