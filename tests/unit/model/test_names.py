"""The room's names are found in its modules, each when it is first used."""

from __future__ import annotations

import orchestrator.model as model


def test_every_name_is_in_the_module_that_is_told() -> None:
    assert sorted(model._MODULE_OF) == sorted(model.__all__)
    assert all(getattr(model, name) is not None for name in model.__all__)
