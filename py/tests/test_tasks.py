"""Tasks of encoders and encoder-decoders, and the shapes of other packages."""

import subprocess
import sys

import numpy as np
import pytest
import siskin
from siskin.pipelines import pipeline


def test_embeddings(minilm: siskin.Model) -> None:
    vectors = minilm.embed(iter(["a bird", "a finch", "a train"]))
    assert vectors.shape == (3, 384) and vectors.dtype == np.float32
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    assert minilm.embed([]).shape == (0, 384)
    assert np.allclose(np.linalg.norm(minilm.embed("a bird")), 1.0, atol=1e-5)
    with pytest.raises(siskin.TooLongError):
        minilm.embed("word " * 1000)
    assert minilm.embed("word " * 1000, overflow="truncate").shape == (384,)
    with pytest.raises(siskin.ArgumentError, match="overflow"):
        minilm.embed("a", overflow="cut")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        minilm.embed([1, 2])  # type: ignore[list-item]


def test_pipelines(smollm2: siskin.Model, minilm: siskin.Model) -> None:
    generate = pipeline("text-generation", smollm2)
    (result,) = generate("The sky is", max_new_tokens=4, do_sample=False)
    assert result["generated_text"].startswith("The sky is") and len(result["generated_text"]) > 11
    (short,) = generate("The sky is", max_new_tokens=4, do_sample=False, return_full_text=False)
    assert "The sky is" + short["generated_text"] == result["generated_text"]
    (chat,) = generate([{"role": "user", "content": "Hi"}], max_new_tokens=4)
    assert [message["role"] for message in chat["generated_text"]] == ["user", "assistant"]
    with pytest.raises(TypeError, match="threads"):
        pipeline("text-generation", smollm2, threads=3)
    with pytest.raises(ValueError, match="unknown task `speak`"):
        pipeline("speak", minilm)


def test_the_import_is_quick_and_needs_no_numpy() -> None:
    code = "import sys, siskin; assert 'numpy' not in sys.modules and 'tqdm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
