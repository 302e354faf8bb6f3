"""Training with callbacks."""

from pathlib import Path
from typing import Any

import pytest
import siskin

CONFIG = """
steps = 12
check = false

[model]
family = "gpt2"
tokenizer_vocab_size = 300
config = { vocab_size = 300, n_embd = 16, n_layer = 1, n_head = 2, n_positions = 32 }

[data]
task = "causal_lm"
train = ["text.txt"]
validation_split = 0.2
settings = { max_length = 32, packing = true }

[batch]
max_tokens = 128

[schedule]
name = "constant"
learning_rate = 1e-2

[validation]
every_n_steps = 6

[checkpoint]
every_n_steps = 4
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("\n\n".join(f"{count} birds sat on a wire. " * 8 for count in range(60)))
    path = tmp_path / "tiny.toml"
    path.write_text(CONFIG)
    return path


def test_callbacks_have_reports_and_end_a_run(config: Path) -> None:
    reports: list[dict[str, Any]] = []
    result = siskin.train(config, callbacks=[reports.append])
    steps = [report for report in reports if report["kind"] == "step"]
    assert [report["step"] for report in steps] == list(range(1, 13)) and result["steps"] == 12
    assert steps[-1]["loss"] == result["loss"] < steps[0]["loss"]
    assert any(report["kind"] == "validation" and report["validation_loss"] > 0 for report in reports)
    model = siskin.load(config.with_suffix(".siskin"))
    assert model.family == "gpt2" and model.generate("3 birds", max_tokens=4).tokens == 4
    with pytest.raises(siskin.ArgumentError, match="resume=True"):
        siskin.train(config)

    other = config.with_name("other.run")
    stopped = siskin.train(
        config,
        config.with_name("other.siskin"),
        folder=other,
        callbacks=[lambda report: report["step"] == 3 and siskin.STOP],
    )
    assert stopped["steps"] == 3 and config.with_name("other.siskin").exists()


def test_an_exception_ends_a_run_that_can_be_resumed(config: Path) -> None:
    def fail(report: dict[str, Any]) -> None:
        if report["kind"] == "step" and report["step"] == 9:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        siskin.train(config, callbacks=[fail])
    assert not config.with_suffix(".siskin").exists()
    reports: list[dict[str, Any]] = []
    assert siskin.train(config, resume=True, callbacks=[reports.append])["steps"] == 12
    assert 1 < min(report["step"] for report in reports if report["kind"] == "step") <= 10
