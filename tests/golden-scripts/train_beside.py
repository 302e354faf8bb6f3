"""Trains with PyTorch what `train_beside` trained, and compares the losses step by step.

usage: train_beside.py CONFIG FOLDER [THREADS]

FOLDER is what `train_beside CONFIG FOLDER` left. The model is Transformers' own, read from FOLDER/start; optimizer,
clipping and schedule are PyTorch's, with the config's settings. FOLDER/pytorch.jsonl gets the losses,
FOLDER/curves.svg both curves. Prints how far the two are apart.
"""
import json
import math
import sys
import tomllib
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def lr_ratio(step, settings, steps):
    """The schedule `cosine` of docs/training.md: linear warmup, then cosine decay."""
    warmup_steps, min_lr_ratio = settings.get("warmup_steps", 0), settings.get("min_lr_ratio", 0.0)
    if step < warmup_steps:
        return step / warmup_steps
    progress = min((step - warmup_steps) / max(steps - warmup_steps, 1), 1.0)
    return min_lr_ratio + (1 - min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * progress))


def loss_of(model, batch):
    """The sum of the weighted losses of a batch, and of the weights. Texts of equal length are batched."""
    rows = [None] * sum(map(len, batch["texts"]))
    first, places = 0, {}
    for text in batch["texts"]:
        places.setdefault(len(text), []).append((first, text))
        first += len(text)
    for length, texts in places.items():
        logits = model(torch.tensor([text for _, text in texts])).logits
        for (first, _), numbers in zip(texts, logits):
            for row in range(length):
                rows[first + row] = numbers[row]
    outputs = torch.stack([rows[row] for row in batch["output_rows"]])
    losses = torch.nn.functional.cross_entropy(outputs, torch.tensor(batch["targets"]), reduction="none")
    weights = torch.tensor(batch["weights"])
    return (losses * weights).sum(), weights.sum()


def main():
    config, folder = tomllib.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    schedule, optimizer = config["schedule"], config["optimizer"]
    assert schedule["name"] == "cosine" and optimizer["name"] == "adamw", "only these are supported here"
    model = AutoModelForCausalLM.from_pretrained(folder / "start", dtype=torch.float32, attn_implementation="sdpa")
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.config.attn_pdrop = 0.0
    for module in model.modules():
        if hasattr(module, "attn_dropout"):
            module.attn_dropout.p = 0.0
    decay = optimizer.get("weight_decay", 0.01)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": decay},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=schedule["learning_rate"], betas=tuple(optimizer.get("betas", (0.9, 0.999))),
                              eps=optimizer.get("eps", 1e-8))
    steps = config["steps"]
    scheduler = torch.optim.lr_scheduler.LambdaLR(adamw, lambda step: lr_ratio(step, schedule, steps))
    batches = lines(folder / "batches.jsonl")
    accumulate = config.get("batch", {}).get("gradient_accumulation_steps", 1)
    validation = lines(folder / "validation.jsonl") if (folder / "validation.jsonl").exists() else []
    every = config.get("validation", {}).get("every_n_steps", 250)
    with (folder / "pytorch.jsonl").open("w") as log:
        for step in range(steps):
            parts = batches[step * accumulate:(step + 1) * accumulate]
            weight = sum(sum(part["weights"]) for part in parts)
            adamw.zero_grad()
            total = 0.0
            for part in parts:
                loss, _ = loss_of(model, part)
                (loss / weight).backward()
                total += loss.item()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.get("max_grad_norm", 1.0)).item()
            adamw.step()
            scheduler.step()
            print(json.dumps({"step": step + 1, "loss": total / weight, "grad_norm": norm}), file=log, flush=True)
            if validation and ((every and (step + 1) % every == 0) or step + 1 == steps):
                with torch.no_grad():
                    sums = [loss_of(model, batch) for batch in validation]
                mean = sum(s.item() for s, _ in sums) / sum(w.item() for _, w in sums)
                print(json.dumps({"step": step + 1, "validation_loss": mean}), file=log, flush=True)
    ours, theirs = lines(folder / "siskin.jsonl"), lines(folder / "pytorch.jsonl")
    compare(ours, theirs)
    (folder / "curves.svg").write_text(drawing(ours, theirs))


def compare(ours, theirs):
    for name in ["loss", "validation_loss"]:
        mine = {line["step"]: line[name] for line in ours if name in line}
        other = {line["step"]: line[name] for line in theirs if name in line}
        assert mine.keys() == other.keys(), f"{name}: not the same steps"
        apart = {step: abs(mine[step] - other[step]) for step in mine}
        worst = max(apart, key=apart.get)
        mean = sum(apart.values()) / len(apart)
        last = max(mine)
        print(f"{name}: {len(mine)} values, at the end {mine[last]:.4f} and {other[last]:.4f}, "
              f"apart {mean:.2e} in the mean, {apart[worst]:.2e} at most (step {worst})")


def drawing(ours, theirs, width=720, height=360, margin=44):
    """Losses over steps: Siskin's wide and light, PyTorch's thin and dark on top of it; circles are validation."""
    curves = [[(line["step"], line["loss"]) for line in log if "loss" in line] for log in (ours, theirs)]
    validations = [[(line["step"], line["validation_loss"]) for line in log if "validation_loss" in line]
             for log in (ours, theirs)]
    points = [point for curve in curves + validations for point in curve]
    last, low, high = max(p[0] for p in points), min(p[1] for p in points), max(p[1] for p in points)
    x = lambda step: margin + (width - 2 * margin) * step / last
    y = lambda loss: height - margin - (height - 2 * margin) * (loss - low) / (high - low)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             'font-size="12">', f'<rect width="{width}" height="{height}" fill="white"/>']
    for tick in range(math.ceil(low), math.floor(high) + 1):
        parts.append(f'<path d="M{margin} {y(tick):.1f}H{width - margin}" stroke="#ddd"/>'
                     f'<text x="{margin - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    for share in range(0, 5):
        step = last * share // 4
        parts.append(f'<text x="{x(step):.1f}" y="{height - margin + 18}" text-anchor="middle">{step}</text>')
    for curve, validation, color, stroke in zip(curves, validations, ("#7fb6e8", "#222222"), (5, 1)):
        path = "L".join(f"{x(step):.1f} {y(loss):.1f}" for step, loss in curve)
        parts.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="{stroke}"/>')
        parts += [f'<circle cx="{x(step):.1f}" cy="{y(loss):.1f}" r="{2 + stroke}" fill="none" stroke="{color}" '
                  'stroke-width="2"/>' for step, loss in validation]
    for row, (name, color) in enumerate([("Siskin", "#7fb6e8"), ("PyTorch", "#222222")]):
        parts.append(f'<text x="{width - margin}" y="{margin + 18 * row}" text-anchor="end" fill="{color}">{name}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">step; circles: validation</text></svg>')
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
