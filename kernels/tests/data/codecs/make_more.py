"""What make_codecs.py lacks: IQ1_M blocks, and what the `gguf` package's own encoders make of ordinary values.

usage: make_more.py OUT_DIR; writes IQ1_M.safetensors (`blocks`, `values`) and encoded.safetensors (`values`, f32, and
for each type the package encodes the blocks of all the values under the type's name).
"""
import sys

import numpy as np
from gguf.constants import GGMLQuantizationType as Q
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

out = sys.argv[1]
rng = np.random.default_rng(7)
blocks = rng.integers(0, 256, (96, 56), dtype=np.uint8)
blocks[:, 55] = blocks[:, 55] & 0x0F | 0x20  # the highest nibble of the scattered f16 scale: positive and below 1
values = dequantize(blocks.reshape(-1), Q.IQ1_M).reshape(96, 256).astype(np.float32)
assert np.isfinite(values).all()
save_file({"blocks": blocks, "values": values}, f"{out}/IQ1_M.safetensors")

# Ten blocks of 256 weights of a trained size, some with outliers, an offset, one constant and one zero.
values = rng.normal(scale=0.02, size=(10, 256)).astype(np.float32)
values[2:5] *= 1 + 4 * (rng.uniform(size=(3, 256)) < 0.03)
values[5] += 0.05
values[6] = np.abs(values[6])
values[7] = 0.125
values[8] = 0
values[9] = rng.standard_t(3, size=256) * 0.02
encoded = {"values": values}
for name in ["BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"]:
    encoded[name] = quantize(values, Q[name]).reshape(-1)
save_file(encoded, f"{out}/encoded.safetensors")
