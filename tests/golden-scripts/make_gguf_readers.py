"""Golden models that read whole texts as GGUF files, as llama.cpp keeps them, and the vectors that PyTorch makes.

usage: make_gguf_readers.py GOLDEN_TEXTS_FOLDER OUT_FOLDER

OUT_FOLDER/NAME/: model.gguf, and vectors.safetensors with a row for each of the texts "w10 w20 w30" and "w40 w5".
"""
import json
import sys
from pathlib import Path

import gguf
import torch
import transformers as T
from safetensors.torch import load_file, save_file

FOLDERS = [Path(argument) for argument in sys.argv[1:3]]
TEXTS = [[2, 10, 20, 30, 3], [2, 40, 5, 3]]
NOMIC = {
    "embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "attn_output_norm", "mlp.up_proj": "ffn_up", "mlp.gate_proj": "ffn_gate",
    "mlp.down_proj": "ffn_down", "post_mlp_layernorm": "layer_output_norm",
}
GEMMA = {
    "embed_tokens": "token_embd", "norm": "output_norm", "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def writer_of(name, architecture, config, way):
    (FOLDERS[1] / name).mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(FOLDERS[1] / name / "model.gguf", architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_pooling_type(way)
    writer.add_tokenizer_model("bert")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = [f"\u2581w{number}" for number in range(len(special), config["vocab_size"])]
    writer.add_token_list(special + words)
    writer.add_token_types([3] * len(special) + [1] * len(words))
    for add, number in zip([writer.add_pad_token_id, writer.add_unk_token_id, writer.add_bos_token_id,
                            writer.add_sep_token_id], range(len(special))):
        add(number)
    return writer


def renamed(names, name):
    for theirs, ours in names.items():
        for kind in ("weight", "bias"):
            if name == f"{theirs}.{kind}":
                return f"{ours}.{kind}"
    layer, rest = name.split("layers.", 1)[1].split(".", 1)
    return f"blk.{layer}.{renamed(names, rest)}"


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def states(model):
    with torch.no_grad():
        return [model(input_ids=torch.tensor([ids])).last_hidden_state[0] for ids in TEXTS]


def save(name, vectors):
    vectors = torch.nn.functional.normalize(torch.stack(vectors), dim=-1)
    save_file({"vectors": vectors}, FOLDERS[1] / name / "vectors.safetensors")


def nomic_bert():
    name, folder = "nomic-bert", FOLDERS[0] / "nomic-bert"
    config = json.loads((folder / "config.json").read_text())
    writer = writer_of(name, "nomic-bert", config, gguf.PoolingType.CLS)
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_token_type_count(config["type_vocab_size"])
    model = T.NomicBertModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False).eval().float()
    tensors = dict(model.state_dict())
    for layer in range(config["num_hidden_layers"]):
        parts = [tensors.pop(f"layers.{layer}.self_attn.{part}_proj.weight") for part in "qkv"]
        writer.add_tensor(f"blk.{layer}.attn_qkv.weight", torch.cat(parts).numpy())
    for theirs, data in tensors.items():
        if data.dtype == torch.float32:
            writer.add_tensor(renamed(NOMIC, theirs), data.numpy())
    close(writer)
    save(name, [state[0] for state in states(model)])


def gemma_embedding():
    name, folder = "gemma-embedding", FOLDERS[0] / "gemma3"
    config = json.loads((folder / "config.json").read_text())
    writer = writer_of(name, "gemma-embedding", config, gguf.PoolingType.MEAN)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_uint32("gemma-embedding.attention.sliding_window_pattern", config["_sliding_window_pattern"])
    writer.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    # llama.cpp scales queries by the head size.
    model = T.Gemma3TextModel.from_pretrained(folder, attn_implementation="eager",
                                              query_pre_attn_scalar=config["head_dim"]).eval().float()
    for theirs, data in model.state_dict().items():
        plain = data + 1 if theirs.endswith("norm.weight") else data
        if data.dtype == torch.float32 and "rotary" not in theirs and "embed_scale" not in theirs:
            writer.add_tensor(renamed(GEMMA, theirs), plain.numpy())
    torch.manual_seed(7)
    width = config["hidden_size"]
    layers = [torch.randn(48, width), torch.randn(width, 48)]
    for place, layer in zip(["dense_2", "dense_3"], layers):
        writer.add_tensor(f"{place}.weight", layer.numpy())
        writer.add_uint32(f"gemma-embedding.{place}_feat_out", layer.shape[0])
        writer.add_uint32(f"gemma-embedding.{place}_feat_in", layer.shape[1])
    close(writer)
    save(name, [layers[1] @ (layers[0] @ state.mean(0)) for state in states(model)])


nomic_bert()
gemma_embedding()
