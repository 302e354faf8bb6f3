"""Reference values from PyTorch for adapters with learned magnitudes (DoRA, Liu et al., 2024), in f64.

usage: make_adapters.py MODEL_DIR OUT.safetensors

MODEL_DIR is a golden model with projections q_proj, v_proj and down_proj. Each of them gets an adapter of rank 4 with
the factor 2; the base stays. 20 steps of plain gradient descent (rate 0.5) on the tokens of io.safetensors, all rows at
once, follow. OUT holds:

    losses                      before each step, and after the last
    LAYER.PROJECTION.a, b, m    the adapters' numbers after the last step
    LAYER.PROJECTION.a.grad, …  the gradients there

The first matrix begins with sin(0.7 i + 1.3 j + n) / 8, where n counts adapters; the second with zeros; the lengths are
those of the rows.
"""
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

RANK, FACTOR, RATE, STEPS = 4, 2.0, 0.5, 20


class Adapted(torch.nn.Module):
    def __init__(self, base, number):
        super().__init__()
        self.base = base.requires_grad_(False)
        rows, columns = base.weight.shape
        i, j = torch.arange(RANK).double()[:, None], torch.arange(columns).double()[None, :]
        self.a = torch.nn.Parameter(torch.sin(0.7 * i + 1.3 * j + number) / 8)
        self.b = torch.nn.Parameter(torch.zeros(rows, RANK).double())
        self.m = torch.nn.Parameter(base.weight.norm(dim=1))

    def forward(self, x):
        direction = self.base.weight + FACTOR * self.b @ self.a
        # The norm is treated as a constant, section 4.3 of the paper.
        length = direction.detach().norm(dim=1)
        y = (x @ direction.T) * (self.m / length)
        return y if self.base.bias is None else y + self.base.bias


folder, out = Path(sys.argv[1]), Path(sys.argv[2])
model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval().double()
model.requires_grad_(False)
adapters = {}
for number, layer in enumerate(model.model.layers):
    for part, name in [(layer.self_attn, "q_proj"), (layer.self_attn, "v_proj"), (layer.mlp, "down_proj")]:
        adapted = Adapted(getattr(part, name), len(adapters))
        setattr(part, name, adapted)
        adapters[f"{number}.{name}"] = adapted
ids = load_file(folder / "io.safetensors")["input_ids"]
numbers = {f"{name}.{key}": value for name, adapted in adapters.items()
           for key, value in (("a", adapted.a), ("b", adapted.b), ("m", adapted.m))}
losses = []
for step in range(STEPS + 1):
    logits = model(input_ids=ids).logits[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
    losses.append(loss.item())
    for value in numbers.values():
        value.grad = None
    loss.backward()
    if step < STEPS:
        with torch.no_grad():
            for value in numbers.values():
                value -= RATE * value.grad
kept = {name: value.detach().clone() for name, value in numbers.items()}
kept |= {f"{name}.grad": value.grad.clone() for name, value in numbers.items()}
save_file({"losses": torch.tensor(losses).double()} | kept, out)
print(losses[0], losses[-1])
