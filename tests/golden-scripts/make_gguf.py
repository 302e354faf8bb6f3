"""Small GGUF models with the values that the `gguf` package reads from them.

usage: make_gguf.py OUT_DIR

tiny.gguf: two Llama layers in many weight types; tiny-00001-of-0000N.gguf: the same, split; expected.safetensors: some
rows of every tensor under its name, rows of queries and keys in the order in which Hugging Face has them.
"""
import sys
from pathlib import Path

import numpy as np
import gguf
from gguf import GGMLQuantizationType as Q
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

OUT = Path(sys.argv[1])
RANDOM = np.random.default_rng(11)
WIDTH, HEADS, KV_HEADS, HEAD, FEED, VOCABULARY = 256, 2, 1, 32, 96, 40
TYPES = [
    # q, k, v, output, gate, up, down; output and down have rows of 64 and 96.
    (Q.Q4_K, Q.Q8_0, Q.F16, Q.Q5_1, Q.Q3_K, Q.IQ4_XS, Q.Q4_0),
    (Q.Q5_K, Q.Q6_K, Q.BF16, Q.Q4_1, Q.Q2_K, Q.TQ2_0, Q.IQ4_NL),
]
# Offsets of the f16 scales in a block: other bytes are arbitrary, scales must be finite.
SCALES = {Q.Q2_K: [80, 82], Q.Q3_K: [108], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.IQ4_NL: [0], Q.IQ4_XS: [0]}


def stored(rows, columns, kind):
    """Random weights as the bytes of a block type."""
    if kind not in SCALES:
        return quantize(RANDOM.normal(scale=0.3, size=(rows, columns)).astype(np.float32), kind)
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = RANDOM.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scale = RANDOM.uniform(0.001, 0.05, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scale.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def tensors():
    """(name, data, type, heads whose rows stand as rotated pairs)"""
    norm = lambda: RANDOM.normal(1, 0.1, WIDTH).astype(np.float32)
    yield "token_embd.weight", stored(VOCABULARY, WIDTH, Q.Q8_0), Q.Q8_0, 0
    for layer, (q, k, v, o, gate, up, down) in enumerate(TYPES):
        matrix = lambda name, rows, columns, kind, heads=0: (
            f"blk.{layer}.{name}.weight", stored(rows, columns, kind), kind, heads)
        yield f"blk.{layer}.attn_norm.weight", norm(), Q.F32, 0
        yield matrix("attn_q", HEADS * HEAD, WIDTH, q, HEADS)
        yield f"blk.{layer}.attn_q.bias", RANDOM.normal(size=HEADS * HEAD).astype(np.float32), Q.F32, HEADS
        yield matrix("attn_k", KV_HEADS * HEAD, WIDTH, k, KV_HEADS)
        yield matrix("attn_v", KV_HEADS * HEAD, WIDTH, v)
        yield matrix("attn_output", WIDTH, HEADS * HEAD, o)
        yield f"blk.{layer}.ffn_norm.weight", norm(), Q.F32, 0
        yield matrix("ffn_gate", FEED, WIDTH, gate)
        yield matrix("ffn_up", FEED, WIDTH, up)
        yield matrix("ffn_down", WIDTH, FEED, down)
    yield "output_norm.weight", norm(), Q.F32, 0
    yield "output.weight", stored(VOCABULARY, WIDTH, Q.Q5_0), Q.Q5_0, 0
    yield "rope_freqs.weight", np.linspace(1, 8, HEAD // 2, dtype=np.float32), Q.F32, 0


def unpair(values, heads):
    """Undoes the row permutation of each head by llama.cpp's converter."""
    if not heads:
        return values
    rows = values.shape[0]
    pairs = values.reshape(heads, rows // heads // 2, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def write(path, made, **split):
    writer = gguf.GGUFWriter(path, "llama", **split)
    writer.add_name("Tiny")
    writer.add_license("mit")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(len(TYPES))
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_chat_template("{{ messages }}")
    writer.add_array("llama.some.flags", [True, False])
    for name, data, kind, _ in made:
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


made = list(tensors())
write(OUT / "tiny.gguf", made)
write(OUT / "tiny", made, split_max_tensors=9)
expected = {}
for name, data, kind, heads in made:
    values = unpair(dequantize(data, kind).astype(np.float32), heads)
    expected[name] = values if values.ndim == 1 else values[[0, 1, 17, len(values) - 1]]
save_file(expected, OUT / "expected.safetensors")
