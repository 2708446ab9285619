"""The published schema: valid, complete, the same as profiles/schema.json, and at one with the loader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestrator.errors import ProfileError
from orchestrator.profile import json_schema, load
from orchestrator.profile.load import to_data
from orchestrator.profile.tree import read_tree

ROOT = Path(__file__).parents[3]
PROFILES = sorted((ROOT / "profiles").glob("*.yaml"))


def plain(raw: bytes) -> Any:
    """A document as an editor's schema check sees it."""
    return json.loads(json.dumps(to_data(read_tree(raw, "p.yaml"))))


def sections(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield node
        for value in node.values():
            yield from sections(value)
    elif isinstance(node, list):
        for value in node:
            yield from sections(value)


def test_it_is_a_valid_schema_of_2020_12() -> None:
    assert json_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(json_schema())


def test_every_object_is_closed_and_every_field_described() -> None:
    found = list(sections(json_schema()))
    assert len(found) >= 9
    for section in found:
        assert section["additionalProperties"] is False
        for name, field in section.get("properties", {}).items():
            assert len(field["description"].split()) >= 3, name


def test_the_published_file_is_the_model() -> None:
    """Write it anew with: orch schema profile > profiles/schema.json"""
    assert json.loads((ROOT / "profiles" / "schema.json").read_text()) == json_schema()


def test_the_hidden_cloud_stays_hidden() -> None:
    assert json_schema()["properties"]["cloud"]["enum"] == ["local", "aws", "gcp", "any"]
    assert "memory" not in json_schema()["properties"]


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_each_profile_is_valid_and_names_the_schema(path: Path) -> None:
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
    Draft202012Validator(json_schema()).validate(plain(path.read_bytes()))
    profile = load(path, environ={}, files=True)
    assert profile.data[0].target == "data"
    assert profile.train.command[:2] == ("python", "train.py")


def test_there_is_one_for_each_cloud() -> None:
    assert {load(path, environ={}).cloud for path in PROFILES} == {"local", "aws", "gcp"}


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"resources": {"cpus": 4}}, True),
        ({"resources": {"cpus": "8+"}}, True),
        ({"resources": {"memory": "4 GiB"}}, True),
        ({"resources": {"memory": 4}}, False),
        ({"resources": {"memory": "4"}}, False),
        ({"resources": {"memory": "4G"}}, False),
        ({"resources": {"memroy": "4 GiB"}}, False),
        ({"resources": {"accelerator": "L4:2"}}, True),
        ({"resources": {"accelerator": {"memory": "16 GiB+", "count": 1}}}, True),
        ({"resources": {"accelerator": {"mem": "16 GiB+"}}}, False),
        ({"resources": {"local_ssd": "100 GB"}}, True),
        ({"resources": {"local_ssd": "1 TB+"}}, True),
        ({"resources": {"local_ssd": 100}}, False),
        ({"resources": {"network": "10 Gbps"}}, True),
        ({"resources": {"network": "2.5Gbps+"}}, True),
        ({"resources": {"network": 10}}, False),
        ({"resources": {"network": "10 Gbit"}}, False),
        ({"resources": {"spot": "yes"}}, False),
        ({"max_duration": "90m"}, True),
        ({"max_duration": 90}, False),
        ({"max_duration": "1:30"}, False),
        ({"cloud": "asw"}, False),
        ({"version": 2}, False),
        ({"train": {"command": ["python", "train.py", 3]}}, True),
        ({"train": {"command": []}}, False),
        ({"train": {"command": "a", "env": {"A": 1, "B": {"from_env": "B"}}}}, True),
        ({"train": {"command": "a", "env": {"1A": "x"}}}, False),
        ({"train": {"command": "a", "env": {"ORCH_X": "x"}}}, False),
        ({"train": {"command": "a", "env": {"A": {"from": "B"}}}}, False),
        ({"data": [{"target": "x"}]}, False),
        ({"name": "Demo"}, False),
    ],
)
def test_an_editor_and_the_loader_agree(change: dict[str, Any], valid: bool, tmp_path: Path) -> None:
    base = {"version": 1, "name": "a", "cloud": "memory", "train": {"command": "python train.py"}}
    document = {**base, **change}
    path = tmp_path / "p.yaml"
    path.write_text(json.dumps(document))
    shown = {**document, "cloud": "gcp"} if "cloud" not in change else document
    assert Draft202012Validator(json_schema()).is_valid(shown) == valid
    if valid:
        load(path, environ={})
    else:
        with pytest.raises(ProfileError):
            load(path, environ={})
