"""Training on a CUDA device, compared with PyTorch on the same device: tokens/s and memory, as Markdown tables.

usage: bench_cuda.py [--models gpt2,bert] [--steps N] [--max-tokens N] [--siskin PATH] [--sanitize]

Needs a device, torch with CUDA, and `cargo build --release -p siskin-cli --features cuda`. The first table has every model
in bf16, beside PyTorch with torch.compile, scaled_dot_product_attention and fused AdamW. Then comes a table for each model
with what each step from plain floats on changes; PyTorch goes without torch.compile there, so that a row shows its step
alone. PyTorch trains a model of the same shape in a process of its own. Speed is the median of the steps after the first
third. Memory is the most that nvidia-smi saw taken beside what was taken before, of either. Texts are random words: speed
does not depend on what they say. Masked tokens are 15 % on both sides; Transformers computes the scores of all tokens
nonetheless, Siskin those of masked ones.

`--sanitize` runs eight steps of a model of two layers under compute-sanitizer instead, so that recorded graphs are played
too: memcheck, racecheck and initcheck, in bf16, fp16, and bf16 with fp8 matmuls.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHAPES = {
    "gpt2": {"family": "gpt2", "length": 1024, "task": "causal_lm", "settings": ", packing = true",
             "vocabulary": 50304, "layers": "n_layer", "config": {
                 "vocab_size": 50304, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}},
    "bert": {"family": "bert", "length": 512, "task": "masked_lm", "settings": "", "vocabulary": 30528,
             "head": "masked_lm", "layers": "num_hidden_layers", "config": {
                 "vocab_size": 30528, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                 "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2}},
}
# Name, precision, recomputed activations, batch-size factor, and PyTorch's attention implementation.
STEPS = [
    ("baseline: floats", "f32", "none", 1, "eager"),
    ("+ mixed precision", "bf16", "none", 1, "eager"),
    ("+ recompute", "bf16", "layers", 1, "eager"),
    ("+ four times the batch", "bf16", "layers", 4, "eager"),
    ("+ flash attention (Siskin's is in tiles in every row)", "bf16", "layers", 4, "sdpa"),
]
FASTEST = ("bf16", "bf16", "none", 1, "sdpa")
SANITIZED = [("bf16", "bf16", ""), ("fp16", "fp16", ""), ("bf16 and fp8", "bf16", "fp8 = true")]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# This many words make three whole windows of 512 tokens, including the two special tokens around each.
WORDS = 3 * 510


def texts(folder, count):
    """Documents of random words, and a tokenizer of these words and a mask token: one token per word."""
    draw = random.Random(1)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(3, 9))) for _ in range(20000)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = list(dict.fromkeys(special + list(LETTERS) + ["##" + letter for letter in LETTERS] + sorted(words)))
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0",
        "added_tokens": [{"id": number, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for number, name in enumerate(special)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {piece: number for number, piece in enumerate(pieces)}},
    }))
    path = folder / "text.txt"
    path.write_text("\n\n".join(" ".join(draw.choices(words, k=WORDS)) for _ in range(count)))
    return path


def config(folder, name, text, shape, row, arguments, extra=""):
    """A config of a run of this many steps; its checkpoints are next to it in a folder of the same name."""
    _, precision, recompute, times, _ = row
    model = [f'family = "{shape["family"]}"', f'tokenizer = "{folder / "tokenizer.json"}"']
    if "head" in shape:
        model.append(f'head = "{shape["head"]}"')
    numbers = ", ".join(f"{name} = {number}" for name, number in shape["config"].items())
    lines = [
        f"steps = {arguments.steps}", 'device = "cuda"', f'precision = "{precision}"', f'recompute = "{recompute}"',
        extra,
        "[model]", *model, f"config = {{ {numbers} }}",
        "[data]", f'task = "{shape["task"]}"', f'train = ["{text}"]',
        f'settings = {{ max_length = {shape["length"]}{shape["settings"]} }}',
        "[batch]", f"max_tokens = {arguments.max_tokens * times}",
        "[schedule]", "learning_rate = 1e-4", "[validation]", "every_n_steps = 0", "batches = 1", "[checkpoint]",
        "every_n_steps = 0",
    ]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines))
    return path


def asked(question):
    """Queries nvidia-smi for the first device."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={question}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def used():
    """Bytes in use on the first device."""
    return int(asked("memory.used").split()[0]) * 2**20


def watched(command):
    """The output of a command, or its last line if it failed, and its peak device memory."""
    before, most = used(), 0
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        run = subprocess.Popen(command, stdout=out, stderr=errors, text=True)
        try:
            while run.poll() is None:
                most = max(most, used() - before)
                try:
                    run.wait(timeout=1)
                except subprocess.TimeoutExpired:
                    pass
        finally:
            run.kill()
        out.seek(0)
        errors.seek(0)
        failed = None if run.returncode == 0 else (errors.read().strip().splitlines() or ["it ended"])[-1]
        return out.read(), failed, most


def forget(path):
    """Deletes the files that a run wrote next to its config."""
    shutil.rmtree(path.with_suffix(".run"), ignore_errors=True)
    path.with_suffix(".siskin").unlink(missing_ok=True)


def tokens_per_second(folder):
    """Tokens/s of the median step in a run's log, without the first third."""
    steps = [json.loads(line) for line in folder.joinpath("log.jsonl").open()]
    steps = [step for step in steps if "seconds" in step]
    return statistics.median(step["tokens"] / step["seconds"] for step in steps[len(steps) // 3:])


def ours(path, arguments):
    """Tokens/s and peak memory; or None, and the error."""
    _, failed, most = watched([arguments.siskin, "train", str(path)])
    outcome = (None, failed) if failed else (tokens_per_second(path.with_suffix(".run")), most)
    forget(path)
    return outcome


def torchs(model, row, compiled, arguments):
    """The same for PyTorch."""
    command = [sys.executable, __file__, "--torch", json.dumps([model, row, compiled]),
               "--steps", str(arguments.steps), "--max-tokens", str(arguments.max_tokens)]
    printed, failed, most = watched(command)
    return (None, failed) if failed else (float(printed.split()[-1]), most)


def train_torch(model_name, row, compiled, arguments):
    """Prints PyTorch's tokens/s."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel
    _, precision, recompute, times, attention = row
    shape = SHAPES[model_name]
    kinds = {"gpt2": (GPT2Config, GPT2LMHeadModel), "bert": (BertConfig, BertForMaskedLM)}
    config_kind, model_kind = kinds[shape["family"]]
    torch.manual_seed(1)
    dropout = {"attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0, "hidden_dropout_prob": 0,
               "attention_probs_dropout_prob": 0}
    made = config_kind(**shape["config"], **dropout, use_cache=False, attn_implementation=attention)
    model = model_kind(made).cuda().train()
    if recompute == "layers":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if compiled:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    count = arguments.max_tokens * times // shape["length"]
    tokens = torch.randint(shape["vocabulary"], (count, shape["length"]), device="cuda")
    labels = tokens
    if shape["task"] == "masked":
        labels = torch.where(torch.rand(tokens.shape, device="cuda") < 0.15, tokens, -100)
    done = [torch.cuda.Event(enable_timing=True) for _ in range(arguments.steps + 1)]
    done[0].record()
    for step in range(arguments.steps):
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done[step + 1].record()
    torch.cuda.synchronize()
    seconds = [begin.elapsed_time(end) / 1000 for begin, end in zip(done, done[1:])]
    print(statistics.median(tokens.numel() / own for own in seconds[arguments.steps // 3:]))


def shown(outcome):
    rate, memory = outcome
    return f"{str(memory).replace('|', '/')} | " if rate is None else f"{rate:,.0f} | {memory / 2**30:.1f}"


def compare(folder, text, models, arguments):
    """Prints the tables."""
    print(f"{asked('name')}, driver {asked('driver_version')};",
          ", ".join(f"{name} {version(name)}" for name in ["torch", "transformers"]))
    print(f"Batches of {arguments.max_tokens} tokens, median of {arguments.steps - arguments.steps // 3} steps.", end="\n\n")
    head = "Siskin, tokens/s | GiB | PyTorch, tokens/s | GiB |\n|---|---|---|---|---|"
    print(f"| bf16; PyTorch compiled | {head}")
    for model in models:
        path = config(folder, f"{model}-fastest", text, SHAPES[model], FASTEST, arguments)
        print(f"| {model} | {shown(ours(path, arguments))} | {shown(torchs(model, FASTEST, True, arguments))} |",
              flush=True)
    for model in models:
        print(f"\n| {model}, step by step | {head}")
        for number, row in enumerate(STEPS):
            path = config(folder, f"{model}-{number}", text, SHAPES[model], row, arguments)
            print(f"| {row[0]} | {shown(ours(path, arguments))} | {shown(torchs(model, row, False, arguments))} |",
                  flush=True)


def sanitize(folder, text, models, arguments):
    """Prints the report of compute-sanitizer; returns whether there are no errors."""
    # Masked tokens rarely give the same shape twice.
    arguments.steps, clean = 8, True
    capable = float(asked("compute_cap").split()[0]) >= 8.9
    kinds = [kind for kind in SANITIZED if capable or "fp8" not in kind[2]]
    for model in models:
        shape = SHAPES[model] | {"config": SHAPES[model]["config"] | {SHAPES[model]["layers"]: 2}}
        arguments.max_tokens = shape["length"]
        for tool in ["memcheck", "racecheck", "initcheck"]:
            for number, (name, precision, extra) in enumerate(kinds):
                row = (name, precision, "none", 1, "sdpa")
                path = config(folder, f"{model}-{tool}-{number}", text, shape, row, arguments, extra)
                command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", arguments.siskin, "train"]
                code = subprocess.run([*command, str(path)]).returncode
                print(f"{model}, {tool}, {name}: {'clean' if code == 0 else f'ended with {code}'}", flush=True)
                forget(path)
                clean &= code == 0
    return clean


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(SHAPES), help="which, with commas between them")
    parser.add_argument("--steps", type=int, default=30, help="at least 6: the first third is not counted")
    parser.add_argument("--max-tokens", type=int, default=8192, help="tokens per batch")
    parser.add_argument("--siskin", default=str(ROOT / "target/release/siskin"))
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps < 6:
        parser.error("--steps: at least 6, the first third of which compiles and is not counted")
    models = arguments.models.split(",")
    unknown = [model for model in models if model not in SHAPES]
    if unknown:
        parser.error(f"--models: no {unknown[0]}; there are {', '.join(SHAPES)}")
    # The runs use the first device of nvidia-smi.
    os.environ |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}
    if arguments.torch is not None:
        return train_torch(*json.loads(arguments.torch), arguments)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        text = texts(folder, 40 * arguments.steps)
        if arguments.sanitize:
            sys.exit(not sanitize(folder, text, models, arguments))
        compare(folder, text, models, arguments)


if __name__ == "__main__":
    main()
