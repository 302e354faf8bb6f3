"""Checks and measures the CUDA backend on a machine with an NVIDIA GPU, offline.

python3 check.py --siskin target/release/siskin --out results

Part `equal` compares the outputs of golden models and of random models on the GPU with those on the CPU, byte by byte, for
weight types, KV cache types and families. Part `speed` measures random models in the shapes of known ones, beside the
bandwidth and the throughput of the GPU. Each part prints a table and writes JSON. Models that the backend does not support
are listed as such.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GOLDEN = os.path.join(ROOT, "tests", "data", "golden")
WEIGHTS = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "f16", "bf16", "w8r", "w4i"]
CACHES = ["f32", "f16", "int8", "int14"]


def run(command, **kwargs):
    started = time.time()
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
    return result, time.time() - started


def same_outputs(options, model, tokens, cache, work):
    """Returns "equal", "different", or the error of the GPU."""
    outputs = []
    for device in ["cpu", options.device]:
        output = os.path.join(work, f"{device.replace(':', '')}.safetensors")
        command = [options.siskin, "logits", model, "--input", tokens, "--output", output, "--device", device]
        command += ["--kv", cache] if cache else []
        result, _ = run(command)
        if result.returncode != 0:
            return f"{device}: {result.stderr.strip().splitlines()[-1]}" if result.stderr.strip() else f"{device}: {result.returncode}"
        outputs.append(open(output, "rb").read())
    return "equal" if outputs[0] == outputs[1] else "different"


def write_tokens(path, tokens):
    header = json.dumps({"input_ids": {"dtype": "I64", "shape": [1, len(tokens)], "data_offsets": [0, 8 * len(tokens)]}})
    header = header.encode() + b" " * (-len(header) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(tokens)}q", *tokens))


def equal(options, work):
    rows = []
    models = options.models or sorted(name for name in os.listdir(GOLDEN) if os.path.isdir(os.path.join(GOLDEN, name)))
    for name in models:
        folder = os.path.join(GOLDEN, name)
        tokens = os.path.join(folder, "io.safetensors")
        rows.append((name, "source", "", same_outputs(options, folder, tokens, None, work)))
    for name in options.types_of:
        folder = os.path.join(GOLDEN, name)
        tokens = os.path.join(folder, "io.safetensors")
        for kind in WEIGHTS:
            packed = os.path.join(work, f"{name}-{kind}.siskin")
            result, _ = run([options.siskin, "convert", folder, "-o", packed, "--quant", kind])
            if result.returncode != 0:
                rows.append((name, kind, "", "convert: " + result.stderr.strip().splitlines()[-1]))
                continue
            rows.append((name, kind, "", same_outputs(options, packed, tokens, None, work)))
        for cache in CACHES:
            packed = os.path.join(work, f"{name}-q8_0.siskin")
            rows.append((name, "q8_0", cache, same_outputs(options, packed, tokens, cache, work)))
    # Long enough for several chunks of keys, and for blocks of 256 columns.
    tokens = os.path.join(work, "tokens.safetensors")
    write_tokens(tokens, [(index * 7919) % 1000 for index in range(700)])
    for kind in ["q4_k", "q6_k", "q8_0", "q4_0", "f16"]:
        source = os.path.join(work, f"tiny-{kind}.gguf")
        run([sys.executable, os.path.join(HERE, "random_gguf.py"), source, "--shape", "tiny", "--type", kind])
        for cache in CACHES:
            rows.append(("random tiny, 700", kind, cache, same_outputs(options, source, tokens, cache, work)))
    for row in rows:
        print("%-20s %-8s %-6s %s" % row, flush=True)
    counts = {}
    for row in rows:
        key = row[3] if row[3] in ("equal", "different") else "unsupported" if "does not support" in row[3] else "error"
        counts[key] = counts.get(key, 0) + 1
    print(counts, flush=True)
    return {"rows": rows, "counts": counts}


def speed(options, work):
    rows = []
    for case in options.shapes:
        shape, _, kind = case.partition(":")
        kind = kind or "q4_k"
        source = os.path.join(work, f"{shape}-{kind}.gguf")
        maker = [sys.executable, os.path.join(HERE, "random_gguf.py"), source, "--shape", shape, "--type", kind]
        result, made = run(maker)
        if result.returncode != 0:
            print(case, result.stderr, flush=True)
            continue
        packed = source.replace(".gguf", ".siskin")
        result, converted = run([options.siskin, "convert", source, "-o", packed])
        print(f"{case}: made in {made:.1f} s, packed in {converted:.1f} s {result.stderr.strip()[-200:]}", flush=True)
        os.remove(source)
        size = os.path.getsize(packed)
        for arguments in options.bench:
            command = [options.siskin, "bench", packed, "--json", "--device", options.device, "--repeat", "3"] + arguments.split()
            result, _ = run(command)
            if result.returncode != 0:
                print(case, arguments, result.stderr.strip()[-300:], flush=True)
                continue
            report = json.loads(result.stdout)
            rows.append({"case": case, "arguments": arguments, "bytes": size, **report})
            decode = report.get("generate_tok_s") or 0
            print(f"{case} {arguments}: prefill {report.get('prompt_tok_s')} decode {decode} tokens/s, "
                  f"{decode * size / 1e9:.0f} GB/s of weights, open {report.get('open_ms')} ms", flush=True)
    return {"rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--siskin", default=os.path.join(ROOT, "target/release/siskin"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", default=".")
    parser.add_argument("--work", default="/tmp/siskin-check")
    parser.add_argument("--parts", default="equal,speed")
    parser.add_argument("--models", nargs="*", default=None)
    parser.add_argument("--types-of", nargs="*", default=["llama"])
    parser.add_argument("--shapes", nargs="*", default=["135m:q8_0", "1.5b:q4_k", "8b:q4_k"])
    parser.add_argument("--bench", nargs="*", default=["--prompt 512 --generate 128"])
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    for part in options.parts.split(","):
        started = time.time()
        result = {"equal": equal, "speed": speed}[part](options, options.work)
        with open(os.path.join(options.out, f"{part}.json"), "w") as out:
            json.dump(result, out, indent=1)
        print(f"{part}: {time.time() - started:.1f} s", flush=True)


main()
