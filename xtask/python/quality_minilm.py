"""Compares sentence embeddings of MiniLM with rounded weights and activations with those of the model as it is.

usage: quality_minilm.py FOLDER TEXT (WEIGHTS ROUNDING)...

FOLDER holds model.safetensors, config.json and tokenizer.json of all-MiniLM-L6-v2, TEXT an English text, WEIGHTS is
a safetensors file with other weights. ROUNDING says how the inputs of linear layers are rounded: `blocks` to signed
bytes with a scale per 32, `rows` to signed bytes with a scale per token after a Hadamard rotation of blocks of 64.
Prints a line for each: the mean of 1 - cosine with the weights alone, then with the inputs rounded too the mean and
the highest 1 - cosine and Spearman's rank correlation of the similarities of all pairs of sentences.
"""

import json
import sys

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

SENTENCES = 200
WORDS = range(8, 41)


def sentences(path: str) -> list[str]:
    """Whole sentences without unknown words, evenly spread over the text."""
    found = []
    with open(path, encoding="utf-8") as text:
        for line in text:
            for mark in ("-", ",", "."):
                line = line.replace(f" @{mark}@ ", mark)
            if not line.strip().startswith("="):
                found += [part.strip() + " ." for part in line.split(" . ")]
    found = [part for part in found if "<unk>" not in part and len(part.split()) in WORDS]
    if len(found) < SENTENCES:
        sys.exit(f"{path}: {len(found)} sentences of 8 to 40 words, but {SENTENCES} are needed")
    return [found[index * len(found) // SENTENCES] for index in range(SENTENCES)]


def steps(x: np.ndarray) -> np.ndarray:
    """Rounds to int8 with a scale for each row of the last axis."""
    largest = np.abs(x).max(axis=-1, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(x * inverse) * (largest / np.float32(127))


def rotate(x: np.ndarray) -> np.ndarray:
    """The Hadamard rotation of blocks of 64, which is its own inverse."""
    blocks = x.reshape(-1, 64).copy()
    for stage in range(6):
        pairs = blocks.reshape(-1, 32 >> stage, 2, 1 << stage)
        blocks = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
    return (blocks.reshape(x.shape) * np.float32(0.125)).astype(np.float32)


ROUNDINGS = {
    "none": lambda x: x,
    "blocks": lambda x: steps(x.reshape(-1, 32)).reshape(x.shape),
    # The weights of the file are already rotated back, so the inputs are too.
    "rows": lambda x: rotate(steps(rotate(x))),
}


def gelu(x: np.ndarray) -> np.ndarray:
    """With erf by formula 7.1.26 of Abramowitz and Stegun, which is within 1.5e-7."""
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = np.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * t
    return np.float32(0.5) * x * (1 + np.sign(x) * (1 - series * np.exp(-z * z)))


class Model:
    """The encoder; tokens of all sentences are concatenated as rows."""

    def __init__(self, config: dict, weights: dict[str, np.ndarray], rounding: str) -> None:
        self.config, self.weights, self.rounding = config, weights, ROUNDINGS[rounding]

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        """`x` is already rounded: several layers share it."""
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.config["layer_norm_eps"])
        return x * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def attention(self, layer: str, x: np.ndarray, ends: np.ndarray) -> np.ndarray:
        heads = self.config["num_attention_heads"]
        parts = [self.linear(f"{layer}.attention.self.{part}", x) for part in ("query", "key", "value")]
        split = [np.split(part.reshape(len(x), heads, -1).transpose(1, 0, 2), ends, axis=1) for part in parts]
        mixed = []
        for query, key, value in zip(*split, strict=True):
            scores = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1], dtype=np.float32)
            odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
            odds /= odds.sum(axis=-1, keepdims=True)
            mixed.append((odds @ value).transpose(1, 0, 2).reshape(query.shape[1], -1))
        return np.concatenate(mixed)

    def embeddings(self, ids: list[list[int]]) -> np.ndarray:
        ends = np.cumsum([len(tokens) for tokens in ids])[:-1]
        tables = [self.weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")]
        places = np.concatenate([np.arange(len(tokens)) for tokens in ids])
        x = self.norm("embeddings.LayerNorm", tables[0][np.concatenate(ids)] + tables[1][places] + tables[2][0])
        for index in range(self.config["num_hidden_layers"]):
            layer = f"encoder.layer.{index}"
            mixed = self.rounding(self.attention(layer, self.rounding(x), ends))
            x = self.norm(f"{layer}.attention.output.LayerNorm", x + self.linear(f"{layer}.attention.output.dense", mixed))
            inner = gelu(self.linear(f"{layer}.intermediate.dense", self.rounding(x)))
            x = self.norm(f"{layer}.output.LayerNorm", x + self.linear(f"{layer}.output.dense", self.rounding(inner)))
        pooled = np.stack([part.mean(axis=0) for part in np.split(x, ends)]).astype(np.float64)
        return pooled / np.linalg.norm(pooled, axis=-1, keepdims=True)


def ranks(embeddings: np.ndarray) -> np.ndarray:
    """The ranks of the similarities of all pairs."""
    pairs = (embeddings @ embeddings.T)[np.triu_indices(len(embeddings), 1)]
    return pairs.argsort().argsort().astype(np.float64)


def main() -> None:
    folder, text, *variants = sys.argv[1:]
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_padding()
    ids = [tokenizer.encode(sentence).ids for sentence in sentences(text)]
    truth = Model(config, load_file(f"{folder}/model.safetensors"), "none").embeddings(ids)
    for path, rounding in zip(variants[::2], variants[1::2], strict=True):
        weights = load_file(path)
        alone, both = (Model(config, weights, how).embeddings(ids) for how in ("none", rounding))
        # Clamped at zero: rounding alone can make it negative for identical vectors.
        away = [np.maximum(1 - (truth * other).sum(axis=-1), 0) for other in (alone, both)]
        order = np.corrcoef(ranks(truth), ranks(both))[0, 1]
        print(f"{away[0].mean():.2e} {away[1].mean():.2e} {away[1].max():.2e} {order:.6f}", flush=True)


if __name__ == "__main__":
    main()
