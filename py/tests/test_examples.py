"""The programs of examples/python."""

import json
import subprocess
import sys

from conftest import MODELS, ROOT

import pytest


def run(name: str, *arguments: str, text: str = "") -> str:
    command = [sys.executable, str(ROOT / "examples/python" / name), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def smollm2_path() -> str:
    path = MODELS / "smollm2.gguf"
    if not path.exists():
        pytest.skip(f"{path} is missing; run `cargo xtask model smollm2`")
    return str(path)


def test_chat(smollm2_path: str) -> None:
    assert run("chat.py", smollm2_path, text="Name a bird.\nAnd another one.\n").count("\n") >= 2


def test_extract(smollm2_path: str) -> None:
    found = json.loads(run("extract.py", smollm2_path, text="Ada Lovelace lived in London."))
    assert set(found) == {"people", "places"}


def test_embed() -> None:
    path = MODELS / "minilm"
    if not path.exists():
        pytest.skip(f"{path} is missing; run `cargo xtask model minilm`")
    lines = run("embed.py", str(path), "a small bird", "the stock market fell", "a tiny sparrow").splitlines()
    assert [line.split("  ")[1] for line in lines] == ["a tiny sparrow", "the stock market fell"]
