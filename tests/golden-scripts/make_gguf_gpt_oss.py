"""The golden model gpt-oss as a GGUF file, its tensors as llama.cpp keeps them, and what PyTorch computes with them.

usage: make_gguf_gpt_oss.py GOLDEN_FOLDER OUT_FOLDER

GGUF does not say how gates are limited, so the logits are those with the limits of the published models. Without
PyTorch the script writes only the GGUF file.
"""
import json
import sys
from pathlib import Path

import gguf
from safetensors.numpy import load_file

folder = Path(sys.argv[1])
config, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
rope = config["rope_parameters"]
writer = gguf.GGUFWriter(Path(sys.argv[2]) / "model.gguf", "gpt-oss")
writer.add_block_count(config["num_hidden_layers"])
writer.add_context_length(config["max_position_embeddings"])
writer.add_embedding_length(config["hidden_size"])
writer.add_feed_forward_length(config["intermediate_size"])
writer.add_head_count(config["num_attention_heads"])
writer.add_head_count_kv(config["num_key_value_heads"])
writer.add_key_length(config["head_dim"])
writer.add_value_length(config["head_dim"])
writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
writer.add_vocab_size(config["vocab_size"])
writer.add_expert_count(config["num_local_experts"])
writer.add_expert_used_count(config["num_experts_per_tok"])
writer.add_expert_feed_forward_length(config["intermediate_size"])
writer.add_sliding_window(config["sliding_window"])
writer.add_rope_freq_base(rope["rope_theta"])
writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
writer.add_rope_scaling_factor(rope["factor"])
writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
writer.add_float32("gpt-oss.rope.scaling.yarn_beta_fast", rope["beta_fast"])
writer.add_float32("gpt-oss.rope.scaling.yarn_beta_slow", rope["beta_slow"])

NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.router.weight": "ffn_gate_inp.weight",
    "mlp.router.bias": "ffn_gate_inp.bias",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
} | {
    f"self_attn.{theirs}_proj.{kind}": f"attn_{ours}.{kind}"
    for theirs, ours in [("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")]
    for kind in ("weight", "bias")
}
TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
       "lm_head.weight": "output.weight"}
for name, data in tensors.items():
    if name in TOP:
        writer.add_tensor(TOP[name], data)
        continue
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    add = lambda ours, data: writer.add_tensor(f"blk.{layer}.{ours}", data.copy())
    if rest in NAMES:
        add(NAMES[rest], data)
    elif rest == "mlp.experts.down_proj":
        add("ffn_down_exps.weight", data.transpose(0, 2, 1))
    elif rest == "mlp.experts.gate_up_proj":
        add("ffn_gate_exps.weight", data[..., 0::2].transpose(0, 2, 1))
        add("ffn_up_exps.weight", data[..., 1::2].transpose(0, 2, 1))
    else:
        assert rest == "mlp.experts.gate_up_proj_bias", rest
        add("ffn_gate_exps.bias", data[..., 0::2])
        add("ffn_up_exps.bias", data[..., 1::2])
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

import torch
import transformers
from safetensors.torch import load_file as load_torch, save_file

published = transformers.GptOssConfig(**(config | dict(swiglu_limit=7.0, swiglu_alpha=1.702)))
model = transformers.GptOssForCausalLM._from_config(published, attn_implementation="eager").eval().float()
model.load_state_dict(load_torch(folder / "model.safetensors"))
ids = load_torch(folder / "io.safetensors")["input_ids"]
with torch.no_grad():
    logits = model(input_ids=ids).logits
save_file({"input_ids": ids, "logits": logits.contiguous()}, Path(sys.argv[2]) / "io.safetensors")
