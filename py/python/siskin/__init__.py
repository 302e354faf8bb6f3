"""Transformers on the CPU: chat, embeddings, classification, speech and translation.

>>> import siskin
>>> model = siskin.load("smollm2")                        # downloaded when it is first used
>>> for piece in model.chat("Why is the sky blue?", stream=True):
...     print(piece, end="")
"""

from ._errors import (
    ArgumentError,
    CanceledError,
    CorruptError,
    Error,
    FileError,
    IntegrityError,
    MissingError,
    NumericError,
    OutOfMemoryError,
    OverloadedError,
    ShapeError,
    StateError,
    TemplateError,
    TooLongError,
    UnsupportedError,
    VersionError,
)
from ._open import convert, load, pull
from ._siskin import Completion, Model, Session, TextStream, __version__
from ._train import STOP, train

__all__ = [
    "STOP",
    "ArgumentError",
    "CanceledError",
    "Completion",
    "CorruptError",
    "Error",
    "FileError",
    "IntegrityError",
    "MissingError",
    "Model",
    "NumericError",
    "OutOfMemoryError",
    "OverloadedError",
    "Session",
    "ShapeError",
    "StateError",
    "TemplateError",
    "TextStream",
    "TooLongError",
    "UnsupportedError",
    "VersionError",
    "__version__",
    "convert",
    "load",
    "pull",
    "train",
]
