"""What a profile that is accepted becomes: absolute paths, defaults, a need, a digest, no secrets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orchestrator.errors import ProfileError
from orchestrator.model import AcceleratorNeed, Bound, Need
from orchestrator.profile import FromEnv, Profile, load
from orchestrator.profile.mismatch import OnMismatch

GIB = 1 << 30
BARE = "version: 1\nname: demo\ncloud: local\ntrain: {command: python train.py}\n"


def read(folder: Path, text: str, *overrides: str, **environ: str) -> Profile:
    path = folder / "demo.yaml"
    path.write_text(text)
    return load(path, overrides=overrides, environ={"HOME": "/home/me", **environ})


def test_the_least_profile_has_every_default(tmp_path: Path) -> None:
    profile = read(tmp_path, BARE)
    assert profile.path == tmp_path / "demo.yaml"
    assert profile.need() == Need(cloud="local", disk=20 * GIB)
    assert (profile.max_duration, profile.idle_duration, profile.max_price) == (4 * 3600, None, None)
    assert (profile.stack.lock, profile.stack.python, profile.stack.delivery) == (None, None, "auto")
    assert (profile.code.path, profile.code.ignore, profile.data) == (tmp_path, (), ())
    assert profile.train.command == ("python", "train.py")
    assert (profile.train.environment({}), profile.train.outputs) == ({}, ())
    assert (profile.parity.steps, profile.parity.on_mismatch) == (3, OnMismatch())


def test_a_cloud_profile_becomes_a_need(tmp_path: Path) -> None:
    profile = read(
        tmp_path,
        """
version: 1
name: demo
cloud: aws
zone: us-east-1b
image: Deep Learning*Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) *
resources: {cpus: 8+, memory: 31 GB, accelerator: {memory: 16 GiB+, count: 2}, disk: 0.5 TB, spot: true,
            local_ssd: 200 GB, network: 10 Gbps+}
max_duration: 1d2h
idle_duration: 45s
max_price: 3
train: {command: [python, train.py, --rate, 1.10, "true", on]}
""",
    )
    assert profile.need() == Need(
        cloud="aws",
        cpus=Bound(8, True),
        memory=Bound(31 * 10**9),
        disk=5 * 10**11,
        local_ssd=2 * 10**11,
        network=10.0,
        accelerator=AcceleratorNeed(Bound(2), None, Bound(16 * GIB, True)),
        arch="x86_64",
        spot=True,
        region="us-east-1",
        zone="us-east-1b",
        max_price=3.0,
        image="Deep Learning*Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) *",
    )
    assert (profile.max_duration, profile.idle_duration) == (26 * 3600, 45)
    assert profile.train.command == ("python", "train.py", "--rate", "1.10", "true", "on")


@pytest.mark.parametrize(
    ("word", "count", "name"),
    [("T4", 1, "T4"), ("l4:2", 2, "L4"), ("A100-80GB:8", 8, "A100-80GB"), ("T4:1+", 1, "T4")],
)
def test_a_gpu_as_one_word(tmp_path: Path, word: str, count: int, name: str) -> None:
    text = BARE.replace("local", "gcp") + f"max_duration: 1h\nresources: {{accelerator: {word}}}\n"
    assert read(tmp_path, text).need().accelerator == AcceleratorNeed(Bound(count, word.endswith("+")), name)


def test_paths_are_relative_to_the_profile_and_absolute_afterwards(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "project").mkdir()
    profile = read(
        tmp_path / "profiles",
        BARE
        + """
code: {path: ../project}
stack: {lock: ../locks/uv.lock, python: ~/envs/demo/bin/python}
data:
  - source: ../project/data/images
  - source: ~/labels
  - {source: /mnt/big/shards, target: ./in//shards/}
  - {source: other, target: /data/other, prepare: python make.py "a b"}
""",
    )
    assert profile.code.path == tmp_path / "project"
    assert profile.stack.lock == tmp_path / "locks" / "uv.lock"
    assert profile.stack.python == Path("/home/me/envs/demo/bin/python")
    assert [(str(data.source), data.target) for data in profile.data] == [
        (f"{tmp_path}/project/data/images", "data/images"),
        ("/home/me/labels", "labels"),
        ("/mnt/big/shards", "in/shards"),
        (f"{tmp_path}/profiles/other", "/data/other"),
    ]
    assert profile.data[3].prepare == ("python", "make.py", "a b")


def test_a_linked_interpreter_stays_the_link(tmp_path: Path) -> None:
    """A virtual environment's python is a link; its target is another environment."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    profile = read(tmp_path, BARE + "stack: {python: bin/python}\n")
    assert profile.stack.python == tmp_path / "bin" / "python"


def test_data_behind_a_link_keeps_its_place_in_the_code(tmp_path: Path) -> None:
    (tmp_path / "disk" / "images").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "data").symlink_to(tmp_path / "disk" / "images")
    (tmp_path / "alias").symlink_to(tmp_path / "project")
    text = f"{BARE}data: [{{source: data}}, {{source: {tmp_path}/alias/more}}]\n"
    assert [data.target for data in read(tmp_path / "project", text).data] == ["data", "more"]


@pytest.mark.parametrize("found", ["uv.lock", "pylock.toml", "requirements.lock", "requirements.txt"])
def test_the_first_lock_found_is_taken(tmp_path: Path, found: str) -> None:
    order = ["uv.lock", "pylock.toml", "requirements.lock", "requirements.txt"]
    for name in order[order.index(found) :]:
        (tmp_path / name).write_text("six==1.17.0 --hash=sha256:00")
    assert read(tmp_path, BARE).stack.lock == tmp_path / found


def test_requirements_without_hashes_are_no_lock(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tensorflow\n")
    assert read(tmp_path, BARE).stack.lock is None
    (tmp_path / "demo.yaml").write_text(BARE)
    (tmp_path / "train.py").write_text("")
    with pytest.raises(ProfileError, match=f"make one: orch lock {tmp_path}"):
        load(tmp_path / "demo.yaml", environ={}, files=True)


def test_a_variable_keeps_the_text_that_was_written(tmp_path: Path) -> None:
    text = BARE.replace("train.py}", "train.py, env: {A: 1.10, B: no, C: true, D: 010, E: '', F: 1:30}}")
    env = read(tmp_path, text).train.environment({})
    assert env == {"A": "1.10", "B": "no", "C": "true", "D": "010", "E": "", "F": "1:30"}


def test_a_secret_is_taken_at_the_run_and_never_kept(tmp_path: Path) -> None:
    text = BARE.replace("train.py}", "train.py, env: {HF_TOKEN: {from_env: MY_TOKEN}}}")
    profile = read(tmp_path, text, MY_TOKEN="s3cret")
    assert profile.train.env == {"HF_TOKEN": FromEnv("MY_TOKEN")}
    assert profile.train.environment({"MY_TOKEN": "s3cret"}) == {"HF_TOKEN": "s3cret"}
    assert "s3cret" not in repr(profile)
    assert profile.digest == read(tmp_path, text, MY_TOKEN="another").digest
    with pytest.raises(ProfileError, match="the variable MY_TOKEN is not set here") as caught:
        profile.train.environment({})
    assert caught.value.where == f"{tmp_path}/demo.yaml:4:51"
    assert caught.value.next_command == "export MY_TOKEN=VALUE    # VALUE: what train.env.HF_TOKEN is to be"


def test_the_digest_covers_the_meaning_and_not_the_words(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    one = read(tmp_path, BARE + "resources: {memory: 4 GiB}\nmax_duration: 90m\n")
    same = "# a comment\nmax_duration: 1h30m\n" + BARE + 'resources: {"memory": 4096MiB, cpus: }\n'
    assert one.digest == read(tmp_path / "elsewhere", same).digest
    for other in ("resources: {memory: 4 GB}", "resources: {memory: 4 GiB+}", "parity: {steps: 4}"):
        assert read(tmp_path, BARE + other + "\nmax_duration: 90m\n").digest != one.digest


def test_a_place_is_known_for_every_key(tmp_path: Path) -> None:
    profile = read(tmp_path, BARE + "data:\n  - source: images\n", "parity.steps=5")
    assert profile.where("data[0].source") == f"{tmp_path}/demo.yaml:6:13"
    assert profile.where("data[0].target") == f"{tmp_path}/demo.yaml:6:5"
    assert profile.where("train.command") == f"{tmp_path}/demo.yaml:4:18"
    assert profile.where("parity.steps") == "--set parity.steps"
    assert profile.where("stack.lock") == f"{tmp_path}/demo.yaml:1:1"


def test_files_are_looked_for_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(BARE + "data: [{source: absent, prepare: python prepare.py}]\n")
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / "train.py").write_text("")
    assert load(path, environ={}, files=True) == load(path, environ={})
    (tmp_path / "train.py").unlink()
    with pytest.raises(ProfileError, match=r"there is no train\.py"):
        load(path, environ={}, files=True)


def test_a_stranger_cloud_for_tests_is_taken_and_not_told(tmp_path: Path) -> None:
    assert read(tmp_path, BARE.replace("local", "memory")).cloud == "memory"
    with pytest.raises(ProfileError) as caught:
        read(tmp_path, BARE.replace("local", "memroy"))
    assert "memory" not in str(caught.value)


def test_a_text_that_is_loaded_again_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier call overrode is as it was written."""
    first = read(tmp_path, BARE)
    monkeypatch.setattr(yaml, "SafeLoader", None)
    other = load(first.path, overrides=["max_duration=2h", "resources.cpus=3"])
    assert (other.max_duration, other.resources.cpus) != (first.max_duration, first.resources.cpus)
    assert load(first.path) == first
    monkeypatch.undo()
    assert read(tmp_path, BARE + "max_duration: 2h\n").max_duration == other.max_duration


def test_importing_the_product_loads_neither_pydantic_nor_yaml() -> None:
    code = (
        "import sys, orchestrator, orchestrator.plan; print('pydantic' in sys.modules, 'yaml' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("field", ["local_ssd: 10 GB", "network: 1 Gbps"])
def test_this_computer_is_not_chosen_by_what_it_has(field: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="a local machine uses the hardware of this computer; remove"):
        read(tmp_path, BARE + f"resources: {{{field}}}\n")


@pytest.mark.parametrize(
    ("written", "stopping"),
    [
        (None, {"DIVERGENT", "UNSTABLE", "NOT COMPARED"}),
        ("stop", {"EQUIVALENT", "DIVERGENT", "UNSTABLE", "NOT COMPARED"}),
        ("warn", set()),
        ("{equivalent: stop, unstable: warn}", {"EQUIVALENT", "DIVERGENT", "NOT COMPARED"}),
        ("{not_compared: warn}", {"DIVERGENT", "UNSTABLE"}),
    ],
)
def test_each_verdict_stops_a_run_or_is_only_reported(
    tmp_path: Path, written: str | None, stopping: set[str]
) -> None:
    parity = f"parity: {{on_mismatch: {written}}}\n" if written else ""
    asked = read(tmp_path, BARE + parity).parity.on_mismatch
    verdicts = ("IDENTICAL", "EQUIVALENT", "DIVERGENT", "UNSTABLE", "NOT COMPARED")
    assert {verdict for verdict in verdicts if asked.stops(verdict)} == stopping
    if written:
        assert read(tmp_path, BARE, f"parity.on_mismatch={written}").parity.on_mismatch == asked


@pytest.mark.parametrize("written", ["{divergnt: warn}", "{divergent: maybe}", "3", "[stop]"])
def test_a_verdict_or_a_word_that_is_none_is_refused(tmp_path: Path, written: str) -> None:
    with pytest.raises(ProfileError, match=r"on_mismatch|verdict"):
        read(tmp_path, BARE + f"parity: {{on_mismatch: {written}}}\n")


@pytest.mark.parametrize(
    "command",
    [
        "python absent.py",
        "python -u absent.py",
        "python3 absent.py --epochs 3",
        "bash absent.py",
        "sh -eu absent.py",
        "bash -euo pipefail absent.py",
        "bash --norc -x absent.py",
        "./absent.py",
        "python -W error train.py",
        "python -m train.py",
        "sh -c train.py",
        "bash -s train.py",
        "bash train.py",
        "./train.py",
        "nosuchprogram train.py",
        "bash data/train.py",
        "bash ../train.py",
    ],
)
def test_a_script_that_is_not_there_is_refused_before_anything_travels(tmp_path: Path, command: str) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / "orch.yaml").write_text(
        BARE + "data: [{source: ../elsewhere, prepare: make, target: data}]\n"
    )
    path = tmp_path / "orch.yaml"
    override = [f"train.command={command}"]
    if "absent" not in command:
        assert load(path, overrides=override, environ={}, files=True).train.command[-1].endswith("train.py")
        return
    with pytest.raises(ProfileError, match=r"train\.command: there is no (\./)?absent\.py in "):
        load(path, overrides=override, environ={}, files=True)
