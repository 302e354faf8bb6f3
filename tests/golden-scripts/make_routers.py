"""Router losses by PyTorch, in f64.

usage: make_routers.py MODEL_DIR OUT.safetensors

MODEL_DIR is a golden Mixtral. The loss is the mean cross-entropy of the next token on io.safetensors, all rows at once,
plus 0.3 · Transformers' load_balancing_loss_func over the routers of all layers, plus 0.05 · the mean square of the
logarithm of the sum of the exponentials of their scores. OUT holds

    losses                     the cross-entropy, the balance, the mean square
    LAYER.gate, LAYER.q        the gradients of the router's matrix, and of the queries'
"""
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

folder, out = Path(sys.argv[1]), Path(sys.argv[2])
plain = dict(attn_implementation="eager", experts_implementation="eager")
model = transformers.AutoModelForCausalLM.from_pretrained(folder, **plain).eval().double()
config = model.config
gates = [(name, module) for name, module in model.named_modules()
         if name.endswith("gate") and getattr(module, "weight", None) is not None
         and module.weight.shape == (config.num_local_experts, config.hidden_size)]
assert len(gates) == config.num_hidden_layers, [name for name, _ in gates]
scores = []
for _, gate in gates:
    # The router logits: some versions return their softmax.
    gate.register_forward_pre_hook(
        lambda module, inputs: scores.append(
            torch.nn.functional.linear(inputs[0].reshape(-1, config.hidden_size), module.weight)))
ids = load_file(folder / "io.safetensors")["input_ids"]
logits = model(input_ids=ids).logits[:, :-1]
cross = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
balance = load_balancing_loss_func(tuple(scores), config.num_local_experts, config.num_experts_per_tok)
square = torch.logsumexp(torch.cat(scores), dim=-1).square().mean()
(cross + 0.3 * balance + 0.05 * square).backward()
kept = {"losses": torch.stack([cross, balance, square]).detach().double()}
for number, ((_, gate), layer) in enumerate(zip(gates, model.model.layers)):
    kept[f"{number}.gate"] = gate.weight.grad.clone()
    kept[f"{number}.q"] = layer.self_attn.q_proj.weight.grad.clone()
save_file(kept, out)
print({name: list(value.shape) for name, value in kept.items()}, kept["losses"].tolist())
