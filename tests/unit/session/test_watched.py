"""The command after `up`: parity is offered where the lock has what parity can watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.session.watched import next_after_up

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
    (tmp_path / "requirements.lock").write_text("".join(PIN.format(name) for name in packages))
    (tmp_path / "train.py").write_text("")
    profile = tmp_path / "orch.yaml"
    profile.write_text(
        "version: 1\nname: x\ncloud: local\nmax_duration: 1h\ntrain: {command: python train.py}\n"
    )
    assert next_after_up(profile) == command
