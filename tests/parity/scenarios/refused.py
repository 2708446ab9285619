"""Runs of which nothing can be said: each must be called NOT COMPARED, and never pass in silence."""

from __future__ import annotations

from tests.parity.scenarios.model import Expected, Scenario, Side, edit

_REFUSED = Expected(("NOT COMPARED",))
_READ = "data = names.interleave(read, cycle_length=2).map(parse).batch(24)"
_LAZY = f"try:\n    {_READ}\nexcept Exception:\n    raise"


def _of(name: str, project: str, old: str, new: str) -> Scenario:
    """One edit of the script, on the second side only."""
    return Scenario(name, project, _REFUSED, b=Side(edits=edit(project, (old, new))))


SCENARIOS = (
    Scenario(
        "a pointer instead of data",
        "images.py",
        _REFUSED,
        b=Side(files={"data/part-0.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"}),
    ),
    _of(
        "a run that breaks off",
        "loop.py",
        "        step(*batch)\n",
        "        step(*batch)\n        raise SystemExit(3)\n",
    ),
    _of("a run that trains nothing", "loop.py", "for _ in range(config", "for _ in range(0 * config"),
    Scenario("a graph and a session", "sessions.py", _REFUSED),
    _of("a path of another computer", "reading.py", 'os.environ.get("SHARDS", "data")', '"C:/Users/me/data"'),
    Scenario(
        "a device that is not there",
        "loop.py",
        _REFUSED,
        both=Side(
            edits=edit(
                "loop.py",
                ("\n\n@tf.function\n", "\ntf.config.set_soft_device_placement(False)\n\n\n@tf.function\n"),
                ("    with tf.GradientTape()", '    with tf.device("/GPU:0"), tf.GradientTape()'),
            )
        ),
    ),
    Scenario(
        "a missing file behind a lazy dataset",
        "reading.py",
        _REFUSED,
        both=Side(
            edits=edit(
                "reading.py",
                (
                    "sorted(os.path.join(FOLDER, n) for n in os.listdir(FOLDER))",
                    '["data/part-0.bin", "data/part-3.bin"]',
                ),
                (_READ, _LAZY),
            )
        ),
        b=Side(files={"data/part-0.bin": None}),
    ),
)
