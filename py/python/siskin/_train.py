"""Training from a config."""

from __future__ import annotations

import os

from . import _siskin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ._open import StrPath

STOP = object()
"""What a callback returns to end a run."""


def train(
    config: StrPath,
    output: StrPath | None = None,
    *,
    folder: StrPath | None = None,
    resume: bool = False,
    callbacks: Sequence[Callable[[dict[str, Any]], object]] = (),
) -> dict[str, Any]:
    """Trains a model from a TOML config on the CPU, writes it to `output`, and returns a report.

    `output` and `folder`, which holds checkpoints, are named after the config unless they are given. Each callback is called
    with a dictionary after each step (`kind` is `step`; `loss`, `learning_rate`, …) and after each validation (`validation`;
    `validation_loss`, …). A callback that returns `siskin.STOP` ends the run, whose weights are then written; with an exception
    or Ctrl-C, the run ends after the step without an output, and `resume=True` continues from its last checkpoint.
    """
    base, _ = os.path.splitext(os.fspath(config))
    return _siskin.train(
        config,
        output if output is not None else base + ".siskin",
        folder=folder if folder is not None else base + ".run",
        resume=resume,
        callbacks=list(callbacks),
    )
