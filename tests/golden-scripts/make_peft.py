"""An adapter in PEFT's format, and the model's logits with it.

usage: make_peft.py MODEL_DIR OUT_DIR

MODEL_DIR is a golden model with projections q_proj, o_proj and down_proj. OUT_DIR gets `adapter_config.json` and
`adapter_model.safetensors` with random numbers, rank 4, a factor of alpha / root of the rank and another alpha for
down_proj, and `io.safetensors` with the ids of the model's first text and the logits that it has with the matrices

    m · (W + factor · B A) / |W + factor · B A|

in their places. The layout and the names are those that PEFT writes; PEFT itself is not needed.
"""
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

RANK, ALPHA, DOWN = 4, 3.0, 5.0

folder, out = Path(sys.argv[1]), Path(sys.argv[2])
out.mkdir(parents=True, exist_ok=True)
torch.manual_seed(5)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval().double()
tensors = {}
for name, module in model.named_modules():
    kind = name.rsplit(".", 1)[-1]
    if kind not in ("q_proj", "o_proj", "down_proj"):
        continue
    rows, columns = module.weight.shape
    a, b = torch.randn(RANK, columns) * 0.2, torch.randn(rows, RANK) * 0.2
    factor = (DOWN if kind == "down_proj" else ALPHA) / RANK ** 0.5
    with torch.no_grad():
        direction = module.weight + factor * b.double() @ a.double()
        m = (module.weight.norm(dim=1) * (1 + 0.2 * torch.randn(rows).double())).float()
        module.weight.copy_(m.double()[:, None] * direction / direction.norm(dim=1, keepdim=True))
    prefix = f"base_model.model.{name}."
    tensors |= {prefix + "lora_A.weight": a, prefix + "lora_B.weight": b, prefix + "lora_magnitude_vector": m}
save_file(tensors, out / "adapter_model.safetensors", metadata={"format": "pt"})
config = {
    "alpha_pattern": {"down_proj": DOWN}, "auto_mapping": None, "base_model_name_or_path": "golden", "bias": "none",
    "fan_in_fan_out": False, "inference_mode": True, "init_lora_weights": True, "layer_replication": None,
    "layers_pattern": None, "layers_to_transform": None, "lora_alpha": ALPHA, "lora_bias": False,
    "lora_dropout": 0.0, "modules_to_save": None, "peft_type": "LORA", "r": RANK, "rank_pattern": {},
    "revision": None, "target_modules": ["q_proj", "o_proj", "down_proj"], "task_type": "CAUSAL_LM",
    "use_dora": True, "use_rslora": True,
}
(out / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
ids = load_file(folder / "io.safetensors")["input_ids"][:1]
with torch.no_grad():
    logits = model(input_ids=ids).logits
save_file({"input_ids": ids, "logits": logits.float()}, out / "io.safetensors")
print(len(tensors), list(logits.shape))
