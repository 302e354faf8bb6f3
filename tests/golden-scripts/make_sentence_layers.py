"""A tiny sentence model with layers after pooling and with prompts, and the vectors that PyTorch computes with it.

needs: torch, transformers, safetensors
usage: make_sentence_layers.py tests/data

Writes embeddings/layers: the modules of sentence-transformers around the model golden-texts/bert, and vectors.json with
ids and vectors.
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import BertModel

data = Path(sys.argv[1])
out = data / "embeddings/layers"
torch.manual_seed(5)
model = BertModel.from_pretrained(data / "golden-texts/bert", add_pooling_layer=False).eval().float()
width = model.config.hidden_size
layers = [(width, 24, True, "torch.nn.modules.activation.Tanh"), (24, 12, False, "torch.nn.modules.linear.Identity")]


def write(path, value):
    path = out / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Dense", "Dense"),
           ("4_Normalize", "Normalize")]
write("modules.json", [dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}")
                       for i, (path, kind) in enumerate(modules)])
write("1_Pooling/config.json", dict(word_embedding_dimension=width, pooling_mode_mean_tokens=True))
write("config_sentence_transformers.json", dict(prompts=dict(query="w5 w6 ", document=""),
                                                default_prompt_name=None))
stack = []
for number, (inputs, outputs, bias, activation) in enumerate(layers, 2):
    linear = torch.nn.Linear(inputs, outputs, bias=bias)
    write(f"{number}_Dense/config.json", dict(in_features=inputs, out_features=outputs, bias=bias,
                                              activation_function=activation))
    tensors = {f"linear.{key}": value.detach() for key, value in linear.state_dict().items()}
    if number == 3:
        tensors = {key: value.half() for key, value in tensors.items()}
        linear = linear.half().float()
    save_file(tensors, out / f"{number}_Dense/model.safetensors")
    stack += [linear, torch.nn.Tanh() if activation.endswith("Tanh") else torch.nn.Identity()]
stack = torch.nn.Sequential(*stack)
texts = [[2, 9, 30, 41, 7, 3], [2, 60, 3], [2, 11, 12, 13, 14, 15, 16, 17, 18, 3]]
vectors = []
with torch.no_grad():
    for ids in texts:
        hidden = model(torch.tensor([ids])).last_hidden_state[0]
        vectors.append(torch.nn.functional.normalize(stack(hidden.mean(0)), dim=0).tolist())
write("vectors.json", dict(ids=texts, vectors=vectors))
