"""Other packages: they are accused only where they act."""

from __future__ import annotations

from tests.parity.scenarios.model import Expected, Scenario, Side, diverges, edit, innocent, rounds

_JAX = Side(environment="other", environ={"KERAS_BACKEND": "jax"})
_OLD_KERAS = Side(environment="other", environ={"TF_USE_LEGACY_KERAS": "1"})

SCENARIOS = (
    Scenario(
        "convolutions of another TensorFlow",
        "images.py",
        rounds("activation gradient", r"tensorflow.* 2\.16\.2"),
        b=Side(environment="older"),
        local=True,
    ),
    Scenario(
        "the Keras of old on one side",
        "legacy.py",
        diverges("initial activation gradient update", "TF_USE_LEGACY_KERAS", confirmed=True),
        both=Side(environment="other"),
        b=Side(environ={"TF_USE_LEGACY_KERAS": "1"}),
    ),
    Scenario(
        "the Keras of old: another rate in a variable",
        "legacy.py",
        diverges("initial update", "RATE", confirmed=True),
        both=_OLD_KERAS,
        b=Side(environ={"RATE": "0.02"}),
    ),
    Scenario(
        "the Keras of old: another initializer",
        "legacy.py",
        diverges("initial", r"legacy\.py", confirmed=True),
        both=_OLD_KERAS,
        b=Side(edits=edit("legacy.py", ('name="hidden"', 'kernel_initializer="he_normal", name="hidden"'))),
    ),
    Scenario(
        "JAX instead of TensorFlow",
        "table.py",
        diverges("batch initial", "KERAS_BACKEND", confirmed=True),
        both=Side(environment="other"),
        b=Side(environ={"KERAS_BACKEND": "jax"}),
    ),
    Scenario(
        "JAX: another seed",
        "table.py",
        diverges("batch initial", r"table\.py", confirmed=True),
        both=_JAX,
        b=Side(edits=edit("table.py", ("set_random_seed(11)", "set_random_seed(12)"))),
    ),
    Scenario(
        "JAX: quick and careless arithmetic",
        "table.py",
        rounds("loss update", "XLA_FLAGS"),
        both=_JAX,
        b=Side(environ={"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}),
        local=True,
    ),
    Scenario(
        "another TensorFlow, and another module",
        "images.py",
        Expected(("DIVERGENT",), ("batch",), (r"prepare\.py",), True),
        b=Side(
            environment="other",
            edits=edit("prepare.py", ("raw / 255.0", "raw / 127.5 - 1.0")),
        ),
    ),
)

CONTROLS = (
    Scenario(
        "another TensorFlow, another NumPy", "images.py", innocent("IDENTICAL"), b=Side(environment="other")
    ),
    Scenario("another TensorFlow in a loop", "loop.py", innocent("IDENTICAL"), b=Side(environment="other")),
    Scenario("an older TensorFlow, no convolution", "reading.py", innocent(), b=Side(environment="older")),
    Scenario("JAX, twice", "table.py", innocent("IDENTICAL"), both=_JAX),
    Scenario("the Keras of old, twice", "legacy.py", innocent("IDENTICAL"), both=_OLD_KERAS),
)
