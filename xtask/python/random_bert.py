"""Writes a BERT-base with random weights: `random_bert.py SOURCE OUTPUT` takes all else from the BERT model SOURCE."""

import json
import shutil
import struct
import sys
from pathlib import Path

import numpy

SHAPE = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12}


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """The names and shapes of all tensors."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    out = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
    }

    def linear(name: str, rows: int, columns: int) -> None:
        out[f"{name}.weight"], out[f"{name}.bias"] = (rows, columns), (rows,)

    def norm(name: str) -> None:
        out[f"{name}.LayerNorm.weight"] = out[f"{name}.LayerNorm.bias"] = (hidden,)

    norm("embeddings")
    for layer in range(config["num_hidden_layers"]):
        of = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            linear(f"{of}.attention.self.{part}", hidden, hidden)
        linear(f"{of}.attention.output.dense", hidden, hidden)
        linear(f"{of}.intermediate.dense", inner, hidden)
        linear(f"{of}.output.dense", hidden, inner)
        norm(f"{of}.attention.output")
        norm(f"{of}.output")
    return out


def main() -> None:
    source, output = map(Path, sys.argv[1:])
    unfinished = output.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, unfinished / name)
    config = json.loads((source / "config.json").read_text()) | SHAPE
    (unfinished / "config.json").write_text(json.dumps(config))
    header, offset = {}, 0
    for name, shape in shapes(config).items():
        end = offset + 4 * int(numpy.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    random = numpy.random.default_rng(0)
    with (unfinished / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            is_scale = name.endswith("LayerNorm.weight")
            values = numpy.ones(entry["shape"]) if is_scale else random.normal(0, 0.02, entry["shape"])
            file.write(values.astype(numpy.float32).tobytes())
    shutil.rmtree(output, ignore_errors=True)
    unfinished.rename(output)


main()
