"""What is kept to run a recorded command again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from orchestrator.replay.recipe import Recipe, keep_inputs, read_recipe, snapshot_inputs, write_recipe
from orchestrator.replay.staleness import changed_since, restored
from orchestrator.replay.working_folders import appeared, files_of

SCRIPT = """
import os
seed = int(os.environ.get("RUN_SEED", "7"))
token = os.environ["API_TOKEN"]
url = os.getenv("STORE")
own = {name: value for name, value in os.environ.items() if name.startswith("APP_")}
"""

ENVIRON = {
    "RUN_SEED": "8",
    "API_TOKEN": "s3cret",
    "STORE": "https://user:s3cret@example.com",
    "APP_CLIP": "0.5",
    "APP_SECRET": "s3cret",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "PYTHONPATH": "/lib",
    "EDITOR": "vi",
    "HOME": "/root",
}


@pytest.fixture
def noted(tmp_path: Path) -> Recipe:
    """A run of SCRIPT, noted with ENVIRON."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "run/observe").mkdir(parents=True)
    (tmp_path / "run/observe/environment.json").write_text(json.dumps({"modules": {"train.py": "0"}}))
    write_recipe(tmp_path / "run", ["python", "train.py"], tmp_path, "/usr/bin/python3", ENVIRON)
    found = read_recipe(tmp_path / "run")
    assert found is not None
    return found


def test_what_acts_or_is_read_is_kept_and_nothing_else(noted: Recipe) -> None:
    assert noted.variables == {
        "APP_CLIP": "0.5",
        "PYTHONPATH": "/lib",
        "RUN_SEED": "8",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }


def test_no_secret_is_written(noted: Recipe, tmp_path: Path) -> None:
    assert noted.argv
    assert "s3cret" not in (tmp_path / "run/rerun.json").read_text()


def test_it_is_repeated_with_what_acted_then(noted: Recipe) -> None:
    now = {"TF_DETERMINISTIC_OPS": "1", "PYTHONPATH": "/other", "HOME": "/home", "STORE": "x"}
    assert noted.environment(now) == {"HOME": "/root", "STORE": "x", **noted.variables}


def test_a_variable_that_was_not_set_is_not_inherited(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    write_recipe(tmp_path, ["python", "train.py"], tmp_path, "/usr/bin/python3", {})
    found = read_recipe(tmp_path)
    assert found is not None and "RUN_SEED" in found.unset
    assert found.environment({"RUN_SEED": "9", "USER": "me"}) == {"USER": "me"}


def test_what_changed_since_is_seen(tmp_path: Path) -> None:
    module, data = tmp_path / "train.py", tmp_path / "data.csv"
    module.write_text("x = 1")
    data.write_text("1;2")
    known = Recipe(("python", "train.py"), tmp_path, "/usr/bin/python3")
    entry = {"name": "data.csv", "path": str(data), "bytes": 3, "whole": True, "sha256": digest(data)}
    facts = {"modules": {"train.py": digest(module)}, "files": {"list": [entry]}}
    assert changed_since(known, facts) is None
    data.write_text("1;3")
    assert changed_since(known, facts) == "data.csv"
    module.write_text("x = 2")
    assert changed_since(known, facts) == "train.py"
    entry["made"] = True
    facts["modules"] = {}
    assert changed_since(known, facts) is None, "the run wrote that file itself"


def test_a_cache_of_a_library_that_changed_makes_no_run_stale(tmp_path: Path) -> None:
    fonts = tmp_path / "fontlist.json"
    fonts.write_text("[]")
    known = Recipe(("python", "train.py"), tmp_path, "/usr/bin/python3")
    entry = {
        "name": "/c/fontlist.json",
        "path": str(fonts),
        "bytes": 2,
        "whole": True,
        "sha256": digest(fonts),
    }
    fonts.write_text("[1]")
    assert changed_since(known, {"files": {"list": [entry]}})
    assert changed_since(known, {"files": {"list": [{**entry, "cache": True}]}}) is None


def test_what_was_kept_stands_in_for_what_was_edited_since(tmp_path: Path) -> None:
    module, data = tmp_path / "train.py", tmp_path / "data.csv"
    module.write_text("x = 1")
    data.write_text("1;2")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / digest(data)).write_bytes(data.read_bytes())
    known = Recipe(("python", "train.py"), tmp_path, "/usr/bin/python3")
    entry = {"name": "data.csv", "path": str(data), "bytes": 3, "whole": True, "sha256": digest(data)}
    facts = {"modules": {"train.py": digest(module)}, "files": {"list": [entry]}}
    assert restored(known, facts, tmp_path / "kept") == {}
    before = digest(data)
    data.write_text("1;3")
    module.write_text("x = 2")
    assert restored(known, facts, tmp_path / "kept") == {str(data): tmp_path / "kept" / before}


def test_files_that_the_run_made_are_noted(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1;2")
    before = set(files_of(tmp_path))
    (tmp_path / "last.npy").write_text("made at the end")
    (tmp_path / "data.csv").write_text("written over")
    made = appeared(before, tmp_path)
    assert made == {"last.npy"}
    run = tmp_path / "run"
    run.mkdir()
    write_recipe(run, ["python", "train.py"], tmp_path, "/usr/bin/python3", {}, made)
    found = read_recipe(run)
    assert found is not None and found.made == ("last.npy",)


def test_small_code_and_data_are_kept_as_the_run_had_them(tmp_path: Path) -> None:
    module, data, large, edited = (tmp_path / name for name in ("train.py", "1.csv", "2.csv", "3.csv"))
    for path, size in ((module, 5), (data, 7), (large, (1 << 20) + 1), (edited, 9)):
        path.write_bytes(b"x" * size)
    entries = [
        {"name": p.name, "path": str(p), "bytes": 1, "whole": True, "sha256": digest(p)}
        for p in (data, large, edited)
    ]
    kept = {digest(module), digest(data)}
    edited.write_text("since")
    value = {"modules": {"train.py": digest(module)}, "files": {"list": entries}}
    (tmp_path / "run/observe").mkdir(parents=True)
    (tmp_path / "run/observe/environment.json").write_text(json.dumps(value))
    keep_inputs(tmp_path / "run", ["python", "train.py"], tmp_path)
    assert {path.name for path in (tmp_path / "run/kept").iterdir()} == kept
    assert all(digest(path) == path.name for path in (tmp_path / "run/kept").iterdir())


def test_what_a_run_read_and_then_wrote_over_is_kept_as_it_read_it(tmp_path: Path) -> None:
    weights, secret = tmp_path / "last.npy", tmp_path / "token.txt"
    weights.write_text("first")
    secret.write_text("s3cret")
    before = digest(weights)
    entry = {"name": "last.npy", "path": str(weights), "bytes": 5, "whole": True, "sha256": before}
    content = snapshot_inputs(tmp_path, files_of(tmp_path))
    assert content == {weights: b"first"}, "and nothing that is called like a secret"
    weights.write_text("second")
    (tmp_path / "run/observe").mkdir(parents=True)
    (tmp_path / "run/observe/environment.json").write_text(json.dumps({"files": {"list": [entry]}}))
    keep_inputs(tmp_path / "run", ["python", "train.py"], tmp_path, content)
    assert (tmp_path / "run/kept" / before).read_text() == "first"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_variables_whose_names_stand_elsewhere_are_kept(tmp_path: Path) -> None:
    """In a list, in another module, behind a prefix; not what every program has, and no secret."""
    (tmp_path / "train.py").write_text("import os, names\nvalues = [os.environ.get(n) for n in names.ALL]\n")
    (tmp_path / "names.py").write_text("ALL = ['LR', 'HOME', 'MY_TOKEN', f'RUN_{1}', 'lower']\n")
    (tmp_path / "run/observe").mkdir(parents=True)
    modules = {"modules": {"train.py": "0", "names.py": "0"}}
    (tmp_path / "run/observe/environment.json").write_text(json.dumps(modules))
    environ = {"LR": "0.1", "HOME": "/root", "MY_TOKEN": "s", "RUN_1": "2", "lower": "x", "OTHER": "y"}
    write_recipe(tmp_path / "run", ["python", "train.py"], tmp_path, "/usr/bin/python3", environ)
    found = read_recipe(tmp_path / "run")
    assert found and found.variables == {"LR": "0.1", "RUN_1": "2"}
