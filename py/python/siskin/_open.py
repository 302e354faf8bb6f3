"""Opening, downloading and converting models, with progress bars."""

from __future__ import annotations

import sys

from . import _siskin

# Not imported when the package is: they take longer than all else.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any, TypeAlias

    Progress: TypeAlias = Callable[[str, int, int], object]
    StrPath: TypeAlias = str | os.PathLike[str]


class _Bars:
    """Bars of tqdm, one per label; nothing where there is neither tqdm nor a terminal or a notebook."""

    def __init__(self) -> None:
        self._bars: dict[str, Any] = {}

    def __call__(self, label: str, done: int, total: int) -> None:
        bar = self._bars.get(label)
        if bar is None:
            bar = self._bars[label] = self._bar(label)
        if bar is not None:
            bar.total = total
            bar.update(done - bar.n)

    @staticmethod
    def _bar(label: str) -> Any:
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped]
        except ImportError:
            return None
        is_notebook = "ipykernel" in sys.modules
        return tqdm(desc=label, unit="B", unit_scale=True, disable=not (is_notebook or sys.stderr.isatty()))

    def close(self) -> None:
        for bar in self._bars.values():
            if bar is not None:
                bar.close()


def load(
    name: StrPath,
    *,
    threads: int = 0,
    context: int = 0,
    adapter: StrPath | None = None,
    cache: StrPath | None = None,
    progress: Progress | None = None,
) -> _siskin.Model:
    """Opens a model: a name such as `smollm2` or `hf:organization/repository`, a file or a folder.

    A name is downloaded when it is first used. Other formats than `.siskin` are packed once, into the folder `cache`; it can be
    `source`, to keep packed files next to their sources, or `off`. `threads` is the number of compute threads, 0 for one for
    each fast core. `context` is the maximum length of sessions in tokens, 0 for that of the model, at most 2048. `adapter` is a
    LoRA adapter. `progress` is called with a label, the bytes done and all bytes; without it, tqdm shows bars.
    """
    bars = _Bars()
    try:
        return _siskin.load(
            name, threads=threads, context=context, adapter=adapter, cache=cache, progress=progress or bars
        )
    finally:
        bars.close()


def opened(model: StrPath | _siskin.Model, **options: Any) -> _siskin.Model:
    """Returns a model that is open already, or opens it."""
    if not isinstance(model, _siskin.Model):
        return load(model, **options)
    if options:
        raise TypeError(f"unexpected keyword argument '{next(iter(options))}' for a model that is open")
    return model


def pull(name: StrPath, *, progress: Progress | None = None) -> Path:
    """Downloads a model unless it is in the cache, and returns its path."""
    bars = _Bars()
    try:
        return _siskin.pull(name, progress=progress or bars)
    finally:
        bars.close()


def convert(
    source: StrPath,
    output: StrPath,
    *,
    quant: str | None = None,
    calibrate: StrPath | None = None,
    progress: Progress | None = None,
) -> Path:
    """Converts a model to a `.siskin` file, and quantizes it with `quant`, such as `w4i`, `q8_0` or `q4_k_m`.

    `calibrate` is a text file, with which weights are rounded by GPTQ.
    """
    bars = _Bars()
    try:
        return _siskin.convert(source, output, quant=quant, calibrate=calibrate, progress=progress or bars)
    finally:
        bars.close()
