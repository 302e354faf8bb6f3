"""Embeddings of sentences by all-MiniLM-L6-v2 in PyTorch.

needs: numpy, torch, transformers, safetensors
usage: make_embeddings.py FOLDER_OF_THE_MODEL tests/data/embeddings
"""

import json
import pathlib
import sys

import numpy as np

SENTENCES = [
    "The ferry leaves the island at a quarter past seven.",
    "Boats to the mainland depart early in the morning.",
    "She planted three rows of beans behind the shed.",
    "Gardening is easier after a day of rain.",
    "Nobody could explain why the old clock had stopped.",
    "A broken spring kept the pendulum from moving.",
    "How do I reset the password of my account?",
    "Sign in, open the settings and choose a new password.",
    "Der Zug nach Bergen hat heute zwei Stunden Verspätung.",
    "Prices rose by 3.2% in 2019, and by 4.1% a year later.",
    "fn main() { println!(\"hello\"); }",
    "Yes.",
    "The committee, which had met every Tuesday since the spring, and which nobody outside the village had ever "
    "taken quite seriously, decided in the end to paint the bridge green, to mend the fence along the river, and to "
    "ask the school whether its choir would sing when the work was done.",
    "Café, naïve, façade: accents stay where they are 😀.",
    "Quantum error correction protects information from noise.",
    "The recipe needs two eggs, a cup of flour and some milk.",
]


def minilm(folder: str, out: pathlib.Path) -> None:
    """Mean pooling over the tokens and L2 normalization, as in the model card."""
    import torch
    from safetensors.numpy import save_file
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    rows = []
    with torch.no_grad():
        for sentence in SENTENCES:
            inputs = tokenizer(sentence, return_tensors="pt", truncation=True, max_length=256)
            mean = model(**inputs)[0][0].mean(0)
            rows.append((mean / mean.norm()).numpy())
    (out / "minilm.json").write_text(json.dumps(SENTENCES, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    save_file({"embeddings": np.stack(rows).astype(np.float32)}, out / "minilm.safetensors")


minilm(sys.argv[1], pathlib.Path(sys.argv[2]))
