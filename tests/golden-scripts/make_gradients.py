"""Gradients of the golden models by PyTorch, in f64.

usage: make_gradients.py OUT_DIR MODEL_DIR…

Each MODEL_DIR has config.json, model.safetensors and io.safetensors, as the other scripts of this folder write them.
OUT_DIR/NAME/ becomes a model of the same layout whose weights are the gradients of

    sum over rows r and columns c of the output:  output[r, c] · cos(0.3 r + 1.7 c) / sqrt(columns)

where r counts the rows of all texts, padding left out. `cargo test -p siskin-tests --test models -- --ignored gradients::bless`
keeps some numbers of each in tests/data/gradients.
"""
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

MASKS = {"attention_mask", "global_attention_mask"}


def gradients(folder, out):
    config = json.loads((folder / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    # The gradients of ModernBERT's eager attention are NaN where rows are padded; Falcon's adds ALiBi twice.
    plain = dict(attn_implementation="sdpa" if config["model_type"] in ("modernbert", "falcon") else "eager")
    if any("expert" in key for key in config):
        plain["experts_implementation"] = "eager"
    model = kind.from_pretrained(folder, **plain).eval().double()
    given = load_file(folder / "io.safetensors")
    wanted = ("input_ids", "attention_mask", "decoder_input_ids", "token_type_ids", "global_attention_mask",
              "input_features")
    inputs = {key: value for key, value in given.items() if key in wanted}
    inputs = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
    result = model(**inputs)
    if hasattr(result, "start_logits"):
        output = torch.stack([result.start_logits, result.end_logits], dim=-1)
    else:
        output = result.logits if hasattr(result, "logits") else result.last_hidden_state
    if output.dim() == 2:
        rows = output
    elif "decoder_input_ids" in inputs or "attention_mask" not in inputs:
        rows = output.reshape(-1, output.shape[-1])
    else:
        rows = output[inputs["attention_mask"].bool()]
    r = torch.arange(rows.shape[0], dtype=torch.double)[:, None]
    c = torch.arange(rows.shape[1], dtype=torch.double)[None, :]
    (rows * torch.cos(0.3 * r + 1.7 * c) / rows.shape[1] ** 0.5).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            gradient = parameter.grad
            parameter.copy_(torch.zeros_like(parameter) if gradient is None else gradient)
    model.float().save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    print(out.name, list(rows.shape))


for folder in map(Path, sys.argv[2:]):
    try:
        gradients(folder, Path(sys.argv[1]) / folder.name)
    except Exception as error:
        print(folder.name, "left out:", repr(error)[:300])
