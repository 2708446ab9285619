"""The bill of materials: what was found installed, as scanners read it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model import Distribution, Fingerprint, Lock, Pin
from orchestrator.runs.sbom import FILE, bill_of, write_sbom
from orchestrator.stack.uv import uv_binary

LOCK = Lock(
    Path("requirements.lock"),
    "requirements",
    "ab" * 32,
    (
        Pin("typing-extensions", "4.1", ("cd" * 32, "ef" * 32)),
        Pin("torch", "2.0+cpu", ("01" * 32,)),
        Pin("torch", "1.9", ("45" * 32,)),
    ),
)
FOUND = Fingerprint(
    "23" * 32,
    "3.11.7",
    (
        Distribution("typing_extensions", "4.1", "r"),
        Distribution("torch", "2.0+cpu", "r"),
        Distribution("pip", "25", "r"),
    ),
    {"implementation": "cpython", "os": "Linux", "cuda": "12.4", "gpu": ""},
    {},
)


def bill() -> dict[str, Any]:
    return bill_of("one", "digits", LOCK, FOUND, 0.0)


def test_every_installed_package_and_the_interpreter() -> None:
    """A local version's plus sign is escaped in a purl; what the lock does not name has no files."""
    packages = {each["name"]: each for each in bill()["components"]}
    assert packages["typing-extensions"]["purl"] == "pkg:pypi/typing-extensions@4.1"
    (wheels,) = packages["torch"]["externalReferences"]
    assert [each["content"] for each in wheels["hashes"]] == ["01" * 32], "not those of another version"
    assert packages["torch"]["purl"] == "pkg:pypi/torch@2.0%2Bcpu"
    assert packages["cpython"]["version"] == "3.11.7"
    files = packages["typing-extensions"]["externalReferences"][0]["hashes"]
    assert [each["content"] for each in files] == ["cd" * 32, "ef" * 32]
    assert "externalReferences" not in packages["pip"]
    told = {each["name"]: each["value"] for each in bill()["metadata"]["properties"]}
    assert told == {
        "orch:lock": LOCK.digest,
        "orch:stack": FOUND.digest,
        "orch:os": "Linux",
        "orch:cuda": "12.4",
    }


def test_it_is_the_same_for_the_same_stack_and_another_for_another_run() -> None:
    other = bill_of("two", "digits", LOCK, FOUND, 0.0)
    assert bill() == bill()
    assert bill()["serialNumber"] != other["serialNumber"]
    references = [each["bom-ref"] for each in bill()["components"]]
    assert len(set(references)) == len(references)
    assert set(bill()["dependencies"][0]["dependsOn"]) < set(references)


VALIDATES = """\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(str(problem) if problem else 0)
"""


@pytest.mark.registry
@pytest.mark.nightly
def test_the_published_schema_accepts_it(tmp_path: Path) -> None:
    write_sbom(tmp_path / "one", "digits", LOCK, FOUND)
    json.loads((tmp_path / "one" / FILE).read_text())
    validator = "cyclonedx-python-lib[json-validation]"
    argv = [
        str(uv_binary()),
        "run",
        "--no-project",
        "--isolated",
        "--with",
        validator,
        "python",
        "-c",
        VALIDATES,
    ]
    subprocess.run([*argv, str(tmp_path / "one" / FILE)], check=True, timeout=300)
