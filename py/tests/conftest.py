"""Models for the tests: small ones with random weights from the repository, and real ones that `cargo xtask model` downloaded."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import siskin

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
MODELS = ROOT / ".models"

_TYPES: dict[str, Any] = {"F32": np.float32, "I64": np.int64, "BOOL": np.bool_, "I32": np.int32}


def safetensors(path: Path) -> dict[str, np.ndarray]:
    """Reads a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(data[start:end], _TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def real(name: str) -> siskin.Model:
    """Opens a downloaded model."""
    path = MODELS / name
    if not path.exists():
        pytest.skip(f"{path} is missing; run `cargo xtask model {name.split('.')[0]}`")
    return siskin.load(path, cache="off", threads=2)


@pytest.fixture(scope="session")
def smollm2() -> siskin.Model:
    return real("smollm2.gguf")


@pytest.fixture(scope="session")
def minilm() -> siskin.Model:
    return real("minilm")


@pytest.fixture(scope="session")
def whisper() -> siskin.Model:
    return real("whisper")
