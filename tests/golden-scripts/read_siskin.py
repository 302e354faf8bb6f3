"""Reads a .siskin file by docs/format.md alone and compares its weights with those the `gguf` package reads.

usage: read_siskin.py FILE.siskin SOURCE.gguf
"""
import json
import struct
import sys

import gguf
import numpy as np
from gguf.quants import dequantize

# id: (columns of a block, lines of a block); what the comparison below knows how to read.
BLOCKS = {0: (64, 64), 1: (64, 32), 2: (64, 32), 3: (64, 17), 5: (64, 9), 6: (64, 10), 9: (64, 11), 11: (256, 37), 13: (256, 53)}


def lanes8(lines):
    """(groups, 64) bytes -> (16 rows, 4 * groups)"""
    return lines.reshape(-1, 16, 4).transpose(1, 0, 2).reshape(16, -1)


def nibbles(lines):
    both = np.stack([lines & 15, lines >> 4], axis=1)
    return lanes8(both.reshape(-1, 64))


def bits1(lines):
    planes = np.stack([lines >> i & 1 for i in range(8)], axis=1)
    return lanes8(planes.reshape(-1, 64))


def bits2(lines):
    planes = np.stack([lines >> (2 * i) & 3 for i in range(4)], axis=1)
    return lanes8(planes.reshape(-1, 64))


def halves(line):
    return line.view(np.float16).astype(np.float32).reshape(2, 16)


def spread(scales, run):
    """(sub-blocks, 16) -> (16, columns)"""
    return np.repeat(scales.T, run, axis=1)


def block_values(kind, block):
    f32 = np.float32
    lines = block.reshape(-1, 64)
    if kind == 0:
        return lines.view(f32).T
    if kind in (1, 2):
        raw = np.ascontiguousarray(lines).view(np.uint16).reshape(-1, 16, 2).transpose(1, 0, 2).reshape(16, -1)
        return raw.copy().view(np.float16).astype(f32) if kind == 1 else (raw.astype(np.uint32) << 16).view(f32)
    if kind == 3:
        return lanes8(lines[:16].view(np.int8)).astype(f32) * spread(halves(lines[16]), 32)
    if kind == 5:
        return (nibbles(lines[:8]).astype(f32) - 8) * spread(halves(lines[8]), 32)
    if kind == 6:
        return nibbles(lines[:8]).astype(f32) * spread(halves(lines[8]), 32) + spread(halves(lines[9]), 32)
    if kind == 9:
        codes = nibbles(lines[:8]) + 16 * bits1(lines[8:10])
        return (codes.astype(f32) - 16) * spread(halves(lines[10]), 32)
    if kind == 11:
        d, dmin = halves(lines[0])
        parts = []
        for m in range(4):
            macro = lines[1 + 9 * m : 10 + 9 * m]
            sc0, sc1, mn0, mn1 = macro[8].reshape(4, 16).astype(f32)
            parts.append(nibbles(macro[:8]).astype(f32) * spread(np.stack([d * sc0, d * sc1]), 32)
                         - spread(np.stack([dmin * mn0, dmin * mn1]), 32))
        return np.concatenate(parts, axis=1)
    if kind == 13:
        d = halves(lines[0])[0]
        parts = []
        for m in range(4):
            macro = lines[1 + 13 * m : 14 + 13 * m]
            codes = nibbles(macro[:8]) + 16 * bits2(macro[8:12])
            scales = d * macro[12].view(np.int8).reshape(4, 16).astype(f32)
            parts.append((codes.astype(f32) - 32) * spread(scales, 16))
        return np.concatenate(parts, axis=1)
    raise NotImplementedError(kind)


def rows_of(data, kind, rows, columns, wanted):
    width, lines = BLOCKS[kind]
    blocks = -(-columns // width)
    for row in wanted:
        start = row // 16 * blocks * lines * 64
        panel = data[start : start + blocks * lines * 64].reshape(blocks, -1)
        yield np.concatenate([block_values(kind, block)[row % 16] for block in panel])[:columns]


def main(path, source):
    data = np.memmap(path, dtype=np.uint8, mode="r")
    magic, major, _, count, length = struct.unpack_from("<8sHHIQ", data, 0)
    assert magic == b"SISKIN\r\n" and major == 1 and length == len(data)
    sections = {}
    for i in range(count):
        kind, _, offset, size = struct.unpack_from("<IIQQ", data, 64 + 64 * i)
        sections[kind] = data[offset : offset + size]
    meta = json.loads(bytes(sections[1]))
    print(meta["quantization"])
    table = bytes(sections[4])
    config = meta["config"]
    original = {tensor.name: tensor for tensor in gguf.GGUFReader(source).tensors}
    renamed = {"ffn_post_norm": "post_ffw_norm", "attn_post_norm": "post_attention_norm"}
    at, checked = 8, 0
    for _ in range(struct.unpack_from("<I", table)[0]):
        name_length, role, _, kind, _, rows, columns, offset, size = struct.unpack_from("<HBBHHQQQQ", table, at)
        name = table[at + 72 : at + 72 + name_length].decode()
        at += 72 + -(-name_length // 8) * 8
        theirs = name
        for ours, other in renamed.items():
            theirs = theirs.replace(ours, other) if theirs not in original else theirs
        tensor = original.pop(theirs)
        here = data[offset : offset + size]
        if role == 1:
            assert np.array_equal(here.view(np.float32), tensor.data), name
            continue
        wanted = sorted({0, 1, rows // 2, rows - 1})
        head = config.get("attention.key_length", columns // config["attention.head_count"])
        for row, found in zip(wanted, rows_of(here, kind, rows, columns, wanted)):
            if meta["architecture"] == "llama" and (".attn_q." in name or ".attn_k." in name):
                within = row % head
                row = row - within + (2 * within if within < head // 2 else 2 * (within - head // 2) + 1)
            expected = dequantize(tensor.data[row : row + 1], tensor.tensor_type)[0]
            assert np.array_equal(found, expected), (name, row)
            checked += 1
    print(checked, "rows agree; not in the file:", list(original))


main(sys.argv[1], sys.argv[2])
