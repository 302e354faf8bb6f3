"""Writes a GGUF model of random weights in the shape of a Llama model, for measurements on machines without models.

python3 random_gguf.py OUT --shape 8b --type q4_k
"""

import argparse
import struct

import numpy as np

# Layers, hidden size, feed-forward size, heads, KV heads, vocabulary.
SHAPES = {
    "tiny": (2, 256, 512, 4, 2, 1024),
    "135m": (30, 576, 1536, 9, 3, 49152),
    "1.5b": (28, 1536, 8960, 12, 2, 151936),
    "8b": (32, 4096, 14336, 32, 8, 128256),
}
# GGML type number, elements and bytes of a block.
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q8_0": (8, 32, 34), "q4_k": (12, 256, 144), "q6_k": (14, 256, 210)}
ALIGNMENT = 32


def blocks(kind, count, random):
    """Returns random blocks whose weights are about 0.02."""
    _, elements, size = TYPES[kind]
    if kind == "f32":
        return np.ones(count, np.float32).tobytes()
    rows = count // elements
    data = random.integers(0, 256, (rows, size), np.uint8)
    scale = {"f16": None, "q4_0": 0.003, "q8_0": 0.0003, "q4_k": 0.00006, "q6_k": 0.00001}[kind]
    if scale is None:
        return (random.standard_normal(count, np.float32) * 0.02).astype(np.float16).tobytes()
    half = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    start = {"q6_k": size - 2}.get(kind, 0)
    data[:, start:start + 2] = half
    if kind == "q4_k":
        data[:, 2:4] = np.frombuffer(np.float16(scale * 7).tobytes(), np.uint8)
    return data.tobytes()


def text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def field(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, list):
        kind = 8 if isinstance(value[0], str) else 5
        items = b"".join(text(item) if kind == 8 else struct.pack("<i", item) for item in value)
        return text(key) + struct.pack("<IIQ", 9, kind, len(value)) + items
    return text(key) + struct.pack("<II", 4, value)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--type", choices=TYPES, default="q4_k")
    parser.add_argument("--embedding", choices=TYPES, default=None)
    parser.add_argument("--context", type=int, default=32768)
    options = parser.parse_args()
    layers, hidden, feed_forward, heads, kv_heads, vocabulary = SHAPES[options.shape]
    head = hidden // heads
    kind, table = options.type, options.embedding or options.type
    tensors = [("token_embd.weight", vocabulary, hidden, table), ("output_norm.weight", 0, hidden, "f32")]
    for layer in range(layers):
        name = f"blk.{layer}."
        tensors += [
            (name + "attn_norm.weight", 0, hidden, "f32"),
            (name + "attn_q.weight", heads * head, hidden, kind),
            (name + "attn_k.weight", kv_heads * head, hidden, kind),
            (name + "attn_v.weight", kv_heads * head, hidden, kind),
            (name + "attn_output.weight", hidden, heads * head, kind),
            (name + "ffn_norm.weight", 0, hidden, "f32"),
            (name + "ffn_gate.weight", feed_forward, hidden, kind),
            (name + "ffn_up.weight", feed_forward, hidden, kind),
            (name + "ffn_down.weight", hidden, feed_forward, kind),
        ]
    tokens = [f"<{index}>" for index in range(vocabulary)]
    fields = {
        "general.architecture": "llama",
        "general.name": f"random {options.shape}",
        "llama.block_count": layers,
        "llama.context_length": options.context,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": feed_forward,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": head,
        "llama.vocab_size": vocabulary,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * vocabulary,
        "tokenizer.ggml.merges": ["< 0"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }
    infos, offset, sizes = b"", 0, []
    for name, rows, columns, of in tensors:
        number, elements, size = TYPES[of]
        dimensions = (columns, rows) if rows else (columns,)
        infos += text(name) + struct.pack("<I", len(dimensions)) + struct.pack(f"<{len(dimensions)}Q", *dimensions)
        infos += struct.pack("<IQ", number, offset)
        length = max(rows, 1) * columns // elements * size
        sizes.append(length)
        offset += (length + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    random = np.random.default_rng(1)
    pool = {}
    with open(options.out, "wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)))
        out.write(b"".join(field(key, value) for key, value in fields.items()) + infos)
        out.write(b"\0" * (-out.tell() % ALIGNMENT))
        for (_, rows, columns, of), length in zip(tensors, sizes):
            # Tensors of equal shape share their numbers, which are quicker to copy than to draw.
            key = (rows, columns, of)
            if key not in pool:
                pool[key] = blocks(of, max(rows, 1) * columns, random)
            out.write(pool[key])
            out.write(b"\0" * (-length % ALIGNMENT))


main()
