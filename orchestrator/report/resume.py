"""The output of `orch resume-check`: what was not restored, how that is known, and what to change."""

from __future__ import annotations

import textwrap

from orchestrator.model.counted import counted
from orchestrator.model.resume import Lost, Omission, ResumeCheck, Resumed

_FIX = {
    Lost.EVERYTHING: "Load the newest checkpoint first: keras.callbacks.BackupAndRestore(folder) in "
    "fit, or tf.train.CheckpointManager with restore_or_initialize() in a loop of your own.",
    Lost.FAILED: "Start the same command again by hand in a folder that holds a checkpoint, and repair what "
    "fails.",
    Lost.WEIGHTS: "Save and load all weights of the model, every model of the job included.",
    Lost.ITERATIONS: "Save the optimizer with the weights: model.save(), BackupAndRestore, or "
    "tf.train.Checkpoint(model=…, optimizer=…). Schedules and Adam's bias correction count its steps.",
    Lost.LEARNING_RATE: "Save the learning rate with the optimizer, and do not set it again after loading.",
    Lost.LOSS_SCALE: "Save the LossScaleOptimizer itself: model.save() or tf.train.Checkpoint(optimizer=…).",
    Lost.AVERAGE: "Save the optimizer, which holds the moving averages of the weights.",
    Lost.SLOTS: "Save the optimizer with the weights: model.save() instead of save_weights(), "
    "BackupAndRestore, or tf.train.Checkpoint(model=…, optimizer=…).",
    Lost.DROPOUT: "Save the state of the layers' SeedGenerator (weights files do not hold it): put "
    "layer.seed_generator.state into a tf.train.Checkpoint, or seed it from the step.",
    Lost.STATISTICS: "Save the layers' statistics (BatchNormalization, Normalization): all of model.weights, "
    "not the trainable ones alone.",
    Lost.DATA_POSITION: "Skip what the epoch has read already (dataset.skip(step % steps_per_epoch), with a "
    "shuffle before it that is seeded by the epoch), or save the iterator in a tf.train.Checkpoint.",
    Lost.DATA_ORDER: "Derive the order and the augmentation of an epoch from its number "
    "(shuffle(seed=seed + epoch)), or save the iterator and its generator.",
    Lost.RANDOM_OPERATIONS: "Use stateless random operations seeded from the step, or save the generator: a "
    "tf.random.Generator can be part of a tf.train.Checkpoint.",
    Lost.GENERATOR_NUMPY: "Save the state of NumPy's generator (rng.bit_generator.state, or "
    "numpy.random.get_state()) in the checkpoint and set it after loading.",
    Lost.GENERATOR_PYTHON: "Save random.getstate() in the checkpoint and set it after loading.",
    Lost.EPOCH: "Pass initial_epoch to fit, from the checkpoint, or use BackupAndRestore.",
    Lost.PATIENCE: "Save wait and best of the callback in the checkpoint, and set them as the epoch begins: "
    "fit resets them.",
    Lost.BEST: "Pass initial_value_threshold to ModelCheckpoint, from the checkpoint.",
    Lost.LENGTH: "Save how many steps or epochs are done, and make only the rest.",
    Lost.UNKNOWN: "Save what the job changes from step to step beside its weights.",
}

_TITLE = {
    Resumed.EXACT: "the resumed run is equal to the run without a break",
    Resumed.NOT_EXACT: "the resumed run differs from the uninterrupted one",
    Resumed.UNSTABLE: "two uninterrupted runs of the job differ",
    Resumed.NO_CHECKPOINT: "there is nothing to resume from",
    Resumed.NOT_CHECKED: "the check could not be carried out",
}


def letter(found: ResumeCheck, width: int = 100) -> str:
    """Format the whole outcome."""
    rows = [f"{found.verdict}: {_TITLE[found.verdict]}", ""]
    rows += [_row(name, text, width) for name, text in _rows(found)]
    return "\n".join(rows)


def _rows(found: ResumeCheck) -> list[tuple[str, str]]:
    rows = []
    if found.checkpoint:
        rows.append(
            (
                "Checkpoint",
                f"{', '.join(found.checkpoint[:3])}, written after step {found.kept} of {found.steps}.",
            )
        )
    if found.verdict == Resumed.EXACT:
        rows.append(
            ("Evidence", f"Bitwise identical after step {found.resumed}: {counted(found.compared, 'step')}.")
        )
    for number, each in enumerate(found.omissions):
        rows += _omission(each, "Finding" if not number else "Also", found.tried)
    if found.why:
        rows.append(("Why", f"{found.why}."))
    if found.verdict == Resumed.UNSTABLE:
        rows.append(("Treatment", "Seed the job first: keras.utils.set_random_seed(1), and see orch lint. "
                     "Checkpoints can only be judged after that."))  # fmt: skip
    if found.verdict == Resumed.NO_CHECKPOINT:
        rows.append(("Treatment", "Write one in the project: keras.callbacks.BackupAndRestore('ckpt'), "
                     "tf.train.CheckpointManager, or a file that is renamed into place. Name its folder: "
                     "orch resume-check --checkpoints ckpt -- python train.py"))  # fmt: skip
    if found.not_compared:
        rows.append(("Not seen", "; ".join(found.not_compared[:3])))
    return rows


def _omission(each: Omission, title: str, tried: int) -> list[tuple[str, str]]:
    names = f": {', '.join(each.names[:4])}" if each.names else ""
    more = f" and {len(each.names) - 4} more" if len(each.names) > 4 else ""
    known = (
        "Confirmed: with it restored, the resumed run is bitwise identical."
        if each.confirmed and tried
        else "Confirmed."
        if each.confirmed
        else "Suspected: this could not be tested by restoring it."
    )
    rows = [(title, f"Not restored: {each.lost}{names}{more}. {_where(each)}".strip())]
    return [*rows, ("Cause", known), ("Treatment", _FIX[each.lost])]


def _where(each: Omission) -> str:
    parts = []
    if each.lost == Lost.EVERYTHING:
        parts.append("The same command starts again from the beginning.")
    elif each.step:
        parts.append(
            f"Step {each.step} is the first that differs" + (f", in its {each.stage}." if each.stage else ".")
        )
    if each.like:
        parts.append(f"It is given the batch of step {each.like}.")
    if each.detail:
        parts.append(f"{each.detail}.")
    return " ".join(parts)


def _row(name: str, text: str, width: int) -> str:
    lines = textwrap.wrap(text, max(30, width - 12)) or [""]
    return "\n".join(f"{name if not number else '':<12}{line}" for number, line in enumerate(lines))
