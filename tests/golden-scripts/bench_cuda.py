"""Training on a CUDA device, beside PyTorch's on the same device: tokens a second and memory, as Markdown tables.

usage: bench_cuda.py [--model gpt2|bert] [--steps N] [--rows R] [--siskin PATH] [--sanitise]

Needs a device, torch with CUDA, and `cargo build --release -p siskin-cli --features cuda`. PyTorch trains a model of the
same shape with torch.compile, scaled_dot_product_attention and fused AdamW, in a process of its own. Rows of the table:
floats, 16 bits, what is recomputed, and larger batches. Memory is the most that nvidia-smi saw taken beside what was taken
before, of either. Texts are random words: speed does not depend on what they say. Masked tokens are 15 % on both sides;
Transformers computes the scores of all tokens nonetheless, Siskin those of masked ones.

`--sanitise` runs one step under compute-sanitizer instead: memcheck, racecheck and initcheck.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHAPES = {
    "gpt2": {"family": "gpt2", "length": 1024, "task": "causal", "settings": ", across = true", "vocabulary": 50304, "config": {
        "vocab_size": 50304, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}},
    "bert": {"family": "bert", "length": 512, "task": "masked", "settings": "", "vocabulary": 30528, "head": "tokens", "config": {
        "vocab_size": 30528, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2}},
}
# What each row changes: precision, recompute, and how many times the texts of a batch.
ROWS = [
    ("floats", "f32", "nothing", 1),
    ("bf16", "bf16", "nothing", 1),
    ("bf16, attention computed again", "bf16", "attention", 1),
    ("bf16, what costs little computed again", "bf16", "cheap", 1),
    ("bf16, four times the batch", "bf16", "nothing", 4),
]


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def texts(folder, count):
    """Documents of random words, and a tokenizer that has the words and a mask."""
    draw = random.Random(1)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(3, 9))) for _ in range(20000)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = special + list(LETTERS) + ["##" + letter for letter in LETTERS] + sorted(set(words))
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
    path.write_text("\n\n".join(" ".join(draw.choices(words, k=1500)) for _ in range(count)))
    return path


def config(folder, name, text, shape, row, arguments):
    """A config of a run of so many steps; its checkpoints are beside it in a folder of that name."""
    _, precision, recompute, times = row
    model = [f'family = "{shape["family"]}"']
    if "head" in shape:
        model += [f'head = "{shape["head"]}"', f'tokenizer = "{folder / "tokenizer.json"}"']
    else:
        model.append(f'vocabulary = {shape["vocabulary"]}')
    numbers = ", ".join(f"{name} = {number}" for name, number in shape["config"].items())
    lines = [
        f"steps = {arguments.steps}", 'device = "cuda"', f'precision = "{precision}"', f'recompute = "{recompute}"',
        "[model]", *model, f"config = {{ {numbers} }}",
        "[data]", f'task = "{shape["task"]}"', f'training = ["{text}"]',
        f'settings = {{ length = {shape["length"]}{shape["settings"]} }}',
        "[batch]", f"rows = {arguments.rows * times}",
        "[schedule]", "rate = 1e-4", "[evaluate]", "every = 0", "batches = 1", "[checkpoint]", "every = 0",
    ]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines))
    return path


def used():
    """Bytes of the first device that are taken."""
    out = subprocess.run(["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                         capture_output=True, text=True, check=True).stdout
    return int(out.split()[0]) * 2**20


def watched(command):
    """What a command printed, its last line where it failed, and the most memory that it took of the device."""
    before, most = used(), 0
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        run = subprocess.Popen(command, stdout=out, stderr=errors, text=True)
        while run.poll() is None:
            most = max(most, used() - before)
            time.sleep(0.1)
        out.seek(0)
        errors.seek(0)
        failed = None if run.returncode == 0 else (errors.read().strip().splitlines() or ["it ended"])[-1]
        return out.read(), failed, most


def ours(path, arguments):
    """Tokens a second after the first steps, and the most memory that was seen."""
    _, failed, most = watched([arguments.siskin, "train", str(path)])
    if failed:
        return None, failed
    steps = [json.loads(line) for line in path.with_suffix(".run").joinpath("log.jsonl").open()]
    steps = [step for step in steps if "seconds" in step][len(steps) // 3:]
    return sum(step["rows"] for step in steps) / sum(step["seconds"] for step in steps), most


def torchs(number, arguments):
    """The same of PyTorch."""
    if ROWS[number][2] != "nothing":
        return None, "no such setting"
    command = [sys.executable, __file__, "--torch", str(number), "--model", arguments.model,
               "--steps", str(arguments.steps), "--rows", str(arguments.rows)]
    printed, failed, most = watched(command)
    return (None, failed) if failed else (float(printed.split()[-1]), most)


def train_torch(shape, row, arguments):
    """Prints the tokens a second of PyTorch."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel
    _, precision, _, times = row
    kinds = {"gpt2": (GPT2Config, GPT2LMHeadModel), "bert": (BertConfig, BertForMaskedLM)}
    config_kind, model_kind = kinds[shape["family"]]
    torch.manual_seed(1)
    dropout = {"attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0, "hidden_dropout_prob": 0,
               "attention_probs_dropout_prob": 0}
    model = model_kind(config_kind(**shape["config"], **dropout, use_cache=False, attn_implementation="sdpa")).cuda()
    model = torch.compile(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    count = arguments.rows * times // shape["length"]
    tokens = torch.randint(shape["vocabulary"], (count, shape["length"]), device="cuda")
    labels = tokens
    if shape["task"] == "masked":
        labels = torch.where(torch.rand(tokens.shape, device="cuda") < 0.15, tokens, -100)
    first = arguments.steps // 3
    for step in range(arguments.steps):
        if step == first:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    print(tokens.numel() * (arguments.steps - first) / (time.perf_counter() - begin))


def shown(outcome):
    rate, memory = outcome
    return f"{memory} | " if rate is None else f"{rate:,.0f} | {memory / 2**30:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="gpt2")
    parser.add_argument("--steps", type=int, default=30, help="at least 6: the first third is not timed")
    parser.add_argument("--rows", type=int, default=8192, help="tokens of a batch")
    parser.add_argument("--siskin", default=str(ROOT / "target/release/siskin"))
    parser.add_argument("--sanitise", action="store_true")
    parser.add_argument("--torch", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps < 6:
        parser.error("--steps: at least 6, the first third of which compiles and is not timed")
    shape = SHAPES[arguments.model]
    if arguments.torch is not None:
        return train_torch(shape, ROWS[arguments.torch], arguments)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        text = texts(folder, 40 * arguments.steps)
        if arguments.sanitise:
            arguments.steps, arguments.rows = 1, shape["length"]
            failed = False
            for tool in ["memcheck", "racecheck", "initcheck"]:
                for number, row in enumerate(ROWS[:2]):
                    path = config(folder, f"{tool}-{number}", text, shape, row, arguments)
                    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", arguments.siskin, "train"]
                    code = subprocess.run([*command, str(path)]).returncode
                    print(f"{tool}, {row[0]}: {'clean' if code == 0 else f'ended with {code}'}")
                    failed |= code != 0
            sys.exit(failed)
        print(", ".join(f"{name} {version(name)}" for name in ["torch", "transformers"]), end="\n\n")
        print("| | Siskin, tokens/s | GiB | PyTorch, tokens/s | GiB |\n|---|---|---|---|---|")
        for number, row in enumerate(ROWS):
            path = config(folder, f"row-{number}", text, shape, row, arguments)
            print(f"| {row[0]} | {shown(ours(path, arguments))} | {shown(torchs(number, arguments))} |", flush=True)


if __name__ == "__main__":
    main()
