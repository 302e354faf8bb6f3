"""A tiny random model of one family in Hugging Face layout, and the logits that PyTorch computes for it.

usage: make_golden.py OUT_DIR MODEL_TYPE [KEY=VALUE]…

OUT_DIR/: config.json and model.safetensors as `save_pretrained` writes them, io.safetensors. KEY=VALUE (JSON) goes into
the configuration after the common sizes; a key that the family's configuration does not know is reported. The key
`attn_implementation` chooses another implementation of attention than `eager`.
"""
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

SEED = 7
SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
             vocab_size=256, max_position_embeddings=128)

out, model_type = Path(sys.argv[1]), sys.argv[2]
asked = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in sys.argv[3:])}
attention = asked.pop("attn_implementation", "eager")
known = transformers.AutoConfig.for_model(model_type)
for key in asked | SIZES:
    if not hasattr(known, key):
        print(f"{model_type} configurations have no {key}; does the model read it?")

torch.manual_seed(SEED)
config = transformers.AutoConfig.for_model(model_type, **(SIZES | asked))
model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval().float()
with torch.no_grad():
    # Norms, biases and gates are initialized to zero or one, where they have no effect on the result.
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.05)
    ids = torch.randint(5, config.vocab_size, (2, 23))
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits

model.save_pretrained(out)
(out / "generation_config.json").unlink(missing_ok=True)
save_file({"input_ids": ids, "logits": logits.contiguous()}, out / "io.safetensors")
print(f"{out}: PyTorch {torch.__version__}, Transformers {transformers.__version__}, seed {SEED}")
for name, parameter in model.state_dict().items():
    print(f"  {name} {list(parameter.shape)}")
