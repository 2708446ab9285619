"""Differences: what is declared with its reason, what stops a training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model import Difference, Distribution, Fingerprint, Lock, Pin
from orchestrator.stack import altered, differences, read_back

FACTS = {
    "python": "3.11.7", "implementation": "cpython", "kernel": "6.1", "cpu_flags": "avx avx2 avx512f",
    "machine": "x86_64", "marker.sys_platform": "linux", "marker.platform_machine": "x86_64",
    "wheel.numpy": "cp311-cp311-manylinux_2_28_x86_64", "wheel.six": "py3-none-any",
}  # fmt: skip
PINS = (
    Pin("numpy", "2.0.0", ("a",)),
    Pin("six", "1.17", ("b",)),
    Pin("colorama", "1", ("c",), "sys_platform == 'win32'"),
)
LOCK = Lock(Path("requirements.lock"), "requirements", "", PINS)
PACKAGES = (Distribution("numpy", "2.0.0", "n"), Distribution("six", "1.17.0", "s"))
SIDE = Fingerprint("d", "3.11.7", PACKAGES, FACTS, {"OMP_NUM_THREADS": "2"})


def changed(*packages: Distribution, **facts: str) -> Fingerprint:
    named = {package.name: package for package in (*PACKAGES, *packages)}
    return replace(SIDE, distributions=tuple(named.values()), facts={**FACTS, **facts})


def without(name: str) -> Fingerprint:
    return replace(SIDE, distributions=tuple(d for d in PACKAGES if d.name != name))


def found(here: Fingerprint, there: Fingerprint, *allow: str) -> list[tuple[str, str, bool]]:
    return [(d.kind, d.name, d.declared) for d in differences(LOCK, here, there, allow)]


def test_the_same_is_no_difference() -> None:
    assert differences(LOCK, SIDE, SIDE) == ()
    assert read_back(LOCK, SIDE) == []


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (
            changed(Distribution("numpy", "2.0.1", "m")),
            [("lock", "numpy", False), ("package", "numpy", False)],
        ),
        (without("six"), [("lock", "six", False), ("package", "six", False)]),
        (changed(Distribution("extra", "1", "x")), [("lock", "extra", False), ("package", "extra", False)]),
        (changed(Distribution("numpy", "2.0.0", "m")), [("package", "numpy", False)]),
        (changed(Distribution("numpy", "2.0.0", "n", ("numpy/core.py",))), [("package", "numpy", False)]),
        (replace(SIDE, python="3.11.8"), [("interpreter", "python", False)]),
        (changed(implementation="pypy"), [("interpreter", "implementation", False)]),
        (replace(SIDE, environment={}), [("environment", "OMP_NUM_THREADS", False)]),
        (
            changed(driver="470.82.01", **{"tensorflow.cuda_version": "12.5.1"}),
            [("driver", "cuda-driver", False), ("driver", "driver", True)],
        ),
        (changed(driver="550.54.14", **{"tensorflow.cuda_version": "12.5.1"}), [("driver", "driver", True)]),
        (
            changed(kernel="6.2", libc="glibc 2.31"),
            [("platform", "kernel", True), ("platform", "libc", True)],
        ),
        (changed(cpu_flags="avx avx2"), [("platform", "cpu_flags", True)]),
        (changed(gpu="T4"), [("driver", "gpu", True)]),
        (changed(build="another"), [("interpreter", "build", True)]),
        (changed(prefix="/elsewhere", executable="/elsewhere/bin/python"), []),
        (changed(Distribution("pip", "26", "p"), Distribution("setuptools", "80", "p")), []),
        (
            changed(Distribution("numpy", "2.0.0", "m"), **{"wheel.numpy": "cp311-cp311-win_amd64"}),
            [("package", "numpy", True)],
        ),
        (changed(Distribution("numpy", "2.0.0", "")), [("package", "numpy", True)]),
    ],
)  # fmt: skip
def test_each_kind_of_difference(there: Fingerprint, expected: list[tuple[str, str, bool]]) -> None:
    assert found(SIDE, there) == expected


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("TF_ENABLE_ONEDNN_OPTS", False), ("XLA_FLAGS", False), ("PYTHONHASHSEED", False),
        ("NVIDIA_TF32_OVERRIDE", False), ("TF_CPP_MIN_LOG_LEVEL", True), ("LANG", True), ("LC_ALL", True),
        ("CUDA_VISIBLE_DEVICES", True),
    ],
)  # fmt: skip
def test_variables(name: str, declared: bool) -> None:
    there = replace(SIDE, environment={**SIDE.environment, name: "1"})
    assert found(SIDE, there) == [("environment", name, declared)]


def test_what_is_only_here() -> None:
    """Tools of the user are named, his own project is expected, a stray file is a hint."""
    here = changed(
        Distribution("ipython", "9", "i"), Distribution("demo", "1", "d"), projects="demo", strays="a.py"
    )
    listed = differences(LOCK, here, SIDE)
    assert [(d.name, d.declared) for d in listed] == [("ipython", False), ("a.py", True), ("demo", True)]
    assert listed[0].reason == "installed here, but not in the lock"


def test_a_pin_for_one_platform_is_declared() -> None:
    here = replace(
        changed(Distribution("colorama", "1", "c")), facts={**FACTS, "marker.sys_platform": "win32"}
    )
    assert ("package", "colorama", True) in found(here, SIDE)


@pytest.mark.parametrize("allow", ["numpy", "package:numpy", "package:*", "num*"])
def test_the_profile_allows_by_name(allow: str) -> None:
    there = changed(Distribution("numpy", "2.0.0", "m"))
    (difference,) = differences(LOCK, SIDE, there, [allow])
    assert (difference.declared, difference.reason) == (True, "allowed by the profile")
    assert found(SIDE, there, "driver:numpy", "pandas") == [("package", "numpy", False)]


def test_altered_files_are_sentences() -> None:
    assert altered(changed(Distribution("six", "1.17.0", "s", ("six.py",)))) == [
        "six 1.17.0: six.py is not what the package brought"
    ]
    assert read_back(LOCK, without("six")) == ["six: locked 1.17, installed not at all"]


# ---------------------------------------------------------------- for any two sides

_names = st.sampled_from(["numpy", "six", "keras", "pip", "demo"])
_packages = st.lists(
    st.builds(Distribution, _names, st.sampled_from(["1", "1.0", "2"]), st.sampled_from(["", "r", "q"]),
              st.sampled_from([(), ("f.py",)])),
    unique_by=lambda d: d.name, max_size=4,
).map(tuple)  # fmt: skip
_facts = st.dictionaries(
    st.sampled_from(
        ["kernel", "cpu_flags", "driver", "gpu", "libc", "tensorflow.cuda_version", "wheel.numpy", "projects"]
    ),
    st.sampled_from(["12.5", "470.1", "550.90", "demo", "a b"]),
)
_environments = st.dictionaries(st.sampled_from(["TF_X", "LANG", "TZ"]), st.sampled_from(["0", "1"]))
_sides = st.builds(
    Fingerprint, st.just("d"), st.sampled_from(["3.11.7", "3.11.8"]), _packages, _facts, _environments
)
_locks = st.lists(
    st.builds(Pin, _names, st.sampled_from(["1", "2"]), st.just(("a",))),
    unique_by=lambda p: p.name,
    max_size=4,
).map(lambda pins: Lock(Path("x"), "requirements", "", tuple(pins)))


@given(_locks, _sides, _sides)
def test_undeclared_come_first_and_each_has_a_reason(
    lock: Lock, here: Fingerprint, there: Fingerprint
) -> None:
    listed = differences(lock, here, there)
    assert [d.declared for d in listed] == sorted(d.declared for d in listed)
    assert all(d.reason for d in listed)


@given(_locks, _sides, _sides)
def test_allowing_everything_leaves_nothing_undeclared(
    lock: Lock, here: Fingerprint, there: Fingerprint
) -> None:
    names = [f"{d.kind}:{d.name}" for d in differences(lock, here, there)]
    after = differences(lock, here, there, names)
    assert all(d.declared for d in after)
    assert sorted(f"{d.kind}:{d.name}" for d in after) == sorted(names)


@given(_locks, _sides, _sides)
def test_packages_that_differ_are_seen_from_both_sides(
    lock: Lock, here: Fingerprint, there: Fingerprint
) -> None:
    def versions(listed: tuple[Difference, ...]) -> set[str]:
        return {d.name for d in listed if d.kind == "package"}

    mine = replace(here, facts={k: v for k, v in here.facts.items() if k != "projects"})
    assert versions(differences(lock, mine, there)) == versions(differences(lock, there, mine))


@given(_locks, _sides)
def test_a_side_differs_from_itself_by_altered_files_alone(lock: Lock, side: Fingerprint) -> None:
    names = {d.name for d in differences(lock, side, side) if d.kind == "package"}
    assert names == {d.name for d in side.distributions if d.altered and _counts(lock, d.name)}


def _counts(lock: Lock, name: str) -> bool:
    return name != "pip" or any(pin.name == name for pin in lock.pins)
