"""Outputs against those of PyTorch that are in the repository."""

import json

import numpy as np
import pytest
import siskin
from conftest import DATA, safetensors
from siskin.sentence_transformers import SentenceTransformer


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3", "gemma3", "mixtral"])
def test_logits(name: str) -> None:
    golden = safetensors(DATA / "golden" / name / "io.safetensors")
    model = siskin.load(DATA / "golden" / name, cache="off", threads=1)
    for tokens, want in zip(golden["input_ids"], golden["logits"]):
        got = model.logits(tokens.tolist())
        assert got.shape == want.shape and got.dtype == np.float32
        assert np.abs(got - want).max() <= 2e-3 * np.abs(want).max()


def test_log_likelihoods_are_those_of_the_logits() -> None:
    golden = safetensors(DATA / "golden/llama/io.safetensors")
    model = siskin.load(DATA / "golden/llama", cache="off", threads=1)
    tokens, logits = golden["input_ids"][0].tolist(), golden["logits"][0].astype(np.float64)
    scores = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
    scores -= logits.max(1, keepdims=True)
    pairs = [(tokens[:cut], tokens[cut:end]) for cut, end in [(1, 4), (2, 9), (2, 9), (5, 6), (3, 3), (4, 12)]]
    for (context, rest), (got, is_greedy) in zip(pairs, model.log_likelihoods(pairs)):
        rows = range(len(context) - 1, len(context) + len(rest) - 1)
        want = sum(scores[row, token] for row, token in zip(rows, rest))
        assert got == pytest.approx(want, abs=2e-3)
        assert is_greedy == all(logits[row].argmax() == token for row, token in zip(rows, rest))
    with pytest.raises(siskin.ArgumentError, match="BOS"):
        model.log_likelihood([], [1])


@pytest.mark.parametrize("name", ["lfm2", "qwen3-next", "mistral"])
def test_likelihoods_where_states_cannot_be_rewound(name: str) -> None:
    model = siskin.load(DATA / "golden" / name, cache="off", threads=1)
    pairs = [([1, 2, 3], [4, 5]), ([1, 2, 3], [6]), ([1, 2], [3, 4])]
    single = [model.log_likelihood(*pair) for pair in pairs]
    assert model.log_likelihoods(pairs) == single


def test_embeddings_are_those_of_sentence_transformers(minilm: siskin.Model) -> None:
    texts = json.loads((DATA / "embeddings/minilm.json").read_text())
    (want,) = safetensors(DATA / "embeddings/minilm.safetensors").values()
    encoder = SentenceTransformer(minilm)
    got = encoder.encode(texts, normalize_embeddings=True)
    assert got.shape == want.shape and got.flags["C_CONTIGUOUS"]
    assert np.abs(got - want).max() <= 1e-5
    assert np.array_equal(encoder.encode(texts[3]), got[3])
    assert encoder.get_sentence_embedding_dimension() == 384
    similarities = SentenceTransformer.similarity(got[:2], got)
    assert similarities.shape == (2, len(texts)) and similarities[0].argmax() == 0
    assert encoder.encode(texts[:2], truncate_dim=64).shape == (2, 64)
    assert encoder.encode(texts[:2], precision="ubinary").shape == (2, 48)


def test_transcripts_are_those_of_whisper(whisper: siskin.Model) -> None:
    want = json.loads((DATA / "speech/speech.json").read_text())["english"]
    plain = whisper.transcribe(DATA / "speech/english.wav", timestamps=False)
    assert plain["segments"][0]["tokens"] == want["plain"] and plain["language"] == "en"
    assert plain["text"].lower() == want["text"].lower()
    got = whisper.transcribe(DATA / "speech/english.wav")
    assert [segment["tokens"] for segment in got["segments"]] == [want["times"][:8], want["times"][8:]]
    assert [segment["id"] for segment in got["segments"]] == list(range(len(got["segments"])))
    silence = whisper.transcribe(np.zeros(16000, np.float32))
    assert silence["text"] == "" and silence["segments"] == []
    with pytest.raises(siskin.FileError, match="missing.wav"):
        whisper.transcribe("missing.wav")
