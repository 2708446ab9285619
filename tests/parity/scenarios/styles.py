"""Planted in scripts of every style: steps of their own, several steps a call, loops, several models."""

from __future__ import annotations

from tests.parity.scenarios.model import Expected, Scenario, Side, diverges, edit, rounds
from tests.parity.scenarios.projects import config, values


def _style(name: str, style: str, expected: Expected, b: Side) -> Scenario:
    """The style is the script's argument on both sides."""
    return Scenario(f"{style}: {name}", "styles.py", expected, both=Side(arguments=(style,)), b=b)


def _script(old: str, new: str) -> Side:
    return Side(edits=edit("styles.py", (old, new)))


def _part(old: str, new: str) -> Side:
    return Side(edits=edit("parts.py", (old, new)))


_STOPPED = "import tensorflow as tf\n\n    return hidden + 0.5 * (hidden - tf.stop_gradient(hidden))"
_LAUNCH = "import subprocess, sys\n\nsubprocess.run([sys.executable, 'styles.py', 'fit'], check=True)\n"
_SHELL = "#!/bin/sh\nset -e\n{}python images.py\n"

SCENARIOS = (
    _style(
        "another rate",
        "several_a_call",
        diverges("files initial update", r"config\.json", confirmed=True),
        Side(files={"config.json": config(rate=0.02)}),
    ),
    _style(
        "another function between layers",
        "own_step",
        diverges("activation", r"parts\.py", confirmed=True),
        _part("return hidden", "return hidden * 0.5"),
    ),
    _style(
        "half of the loss",
        "own_step",
        diverges("loss", r"styles\.py", confirmed=True),
        _script("loss = self.compute_loss(", "loss = 0.5 * self.compute_loss("),
    ),
    _style(
        "gradients that are stopped",
        "eager",
        diverges("gradient", r"parts\.py", confirmed=True),
        _part("return hidden", _STOPPED),
    ),
    _style(
        "one other value",
        "epoch",
        diverges("files batch", r"values\.npy", confirmed=True),
        Side(files={"values.npy": values(changed=40)}),
    ),
    _style(
        "other labels",
        "by_batch",
        diverges("batch", r"styles\.py", confirmed=True),
        _script("np.arange(len(values)) % 4", "(np.arange(len(values)) + 1) % 4"),
    ),
    _style(
        "another seed of the noise",
        "pair",
        diverges("batch initial activation", r"styles\.py", confirmed=True),
        _script("from_seed(9)", "from_seed(10)"),
    ),
    _style(
        "another initializer",
        "fit",
        diverges("initial", r"styles\.py", confirmed=True),
        _script(
            'Dense(4, name="classes")\n\n    def',
            'Dense(4, kernel_initializer="zeros", name="classes")\n\n    def',
        ),
    ),
    _style(
        "the second differs",
        "two_inputs",
        diverges("batch", r"styles\.py", confirmed=True),
        _script("np.linspace(0, 1,", "np.linspace(0, 2,"),
    ),
    Scenario(
        "a program that starts another: another preparation",
        "styles.py",
        diverges("batch", r"parts\.py", confirmed=True),
        both=Side(files={"launch.py": _LAUNCH}, command=("{interpreter}", "launch.py")),
        b=_part("values * 2.0", "values * 2.5"),
    ),
    Scenario(
        "a shell script that turns oneDNN off",
        "images.py",
        rounds("activation gradient", "TF_ENABLE_ONEDNN_OPTS"),
        both=Side(command=("sh", "run.sh"), environ={"PATH": "{bin}:/usr/local/bin:/usr/bin:/bin"}),
        a=Side(files={"run.sh": _SHELL.format("")}),
        b=Side(files={"run.sh": _SHELL.format("export TF_ENABLE_ONEDNN_OPTS=0\n")}),
        local=True,
    ),
)
"""Each style of training once, with something planted in it."""
