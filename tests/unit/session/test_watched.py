"""The command after `up`: parity is offered where the lock has what parity can watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.profile import Profile, load
from orchestrator.session.watched import next_after_up, require_observable

PIN = "{}==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"


@pytest.mark.parametrize(
    ("packages", "command"),
    [
        (("numpy",), "orch train"),
        (("numpy", "scikit-learn"), "orch train"),
        (("torch",), "orch train"),
        (("tensorflow-datasets", "numpy"), "orch train"),
        (("keras", "torch"), "orch train --local-parity"),
        (("tensorflow_cpu",), "orch train --local-parity"),
        (("numpy", "tf-keras"), "orch train --local-parity"),
    ],
)
def test_parity_is_offered_where_it_can_watch(
    packages: tuple[str, ...], command: str, tmp_path: Path
) -> None:
    assert next_after_up(written(tmp_path, *packages)) == command


def written(folder: Path, *packages: str) -> Path:
    (folder / "requirements.lock").write_text("".join(PIN.format(name) for name in packages))
    (folder / "train.py").write_text("")
    profile = folder / "orch.yaml"
    profile.write_text(
        "version: 1\nname: x\ncloud: local\nmax_duration: 1h\ntrain: {command: python train.py}\n"
    )
    return profile


def require(profile: Profile) -> None:
    require_observable(profile, "orch train --run-id one", "Nothing was started.")


def test_parity_without_a_framework_is_refused_before_anything_runs(tmp_path: Path) -> None:
    profile = written(tmp_path, "torch", "numpy")
    with pytest.raises(UsageError, match="TensorFlow and Keras, and the lock has neither") as refused:
        require(load(profile))
    assert refused.value.exit_code == 2
    assert (refused.value.exists, refused.value.next_command) == (
        "Nothing was started.",
        "orch train --run-id one",
    )


def test_parity_that_only_warns_or_can_compare_is_not_refused(tmp_path: Path) -> None:
    profile = written(tmp_path, "torch")
    require(load(profile, overrides=("parity.on_mismatch={not_compared: warn}",)))
    (tmp_path / "keras.py").write_text("")
    require(load(profile))
    require(load(written(tmp_path, "keras", "torch")))
