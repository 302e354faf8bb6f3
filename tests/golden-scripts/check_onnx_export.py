"""Exports models with `siskin export` and runs them in ONNX Runtime.

    check_onnx_export.py SISKIN FOLDER...

Each folder holds a Hugging Face model and `io.safetensors` with inputs and what PyTorch made of them; folders of such
folders will do. Without `io.safetensors`, texts of several lengths in one batch, padded on either side, must give what
each gives alone. Prints a line for each model: the largest difference over the largest expected number, from PyTorch
and between padded and alone. Ends with 1 where one is beyond 1e-4.

Needs: numpy, onnx, onnxruntime, safetensors.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from safetensors.numpy import load_file

MOST = 1e-4


def folders(paths):
    for path in map(pathlib.Path, paths):
        if (path / "config.json").is_file():
            yield path
        else:
            yield from sorted(folder for folder in path.iterdir() if (folder / "config.json").is_file())


def session(path):
    onnx.checker.check_model(str(path), full_check=path.stat().st_size < 1 << 30)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feed(run, tensors):
    """The inputs of the session from `tensors`; a missing mask is all ones, missing segments are zeros."""
    given = {}
    for entry in run.get_inputs():
        if entry.name in tensors:
            given[entry.name] = tensors[entry.name]
        elif entry.name == "attention_mask":
            given[entry.name] = numpy.ones_like(tensors["input_ids"])
        elif entry.name in ("token_type_ids", "global_attention_mask"):
            given[entry.name] = numpy.zeros_like(tensors["input_ids"])
        else:
            raise SystemExit(f"input {entry.name} is not in io.safetensors")
    names = [entry.name for entry in run.get_outputs()]
    return dict(zip(names, run.run(None, given)))


NAMES = {"encoder_hidden": "encoder_last_hidden_state"}


def difference(got, want):
    largest = numpy.abs(want).max()
    return float(numpy.abs(got - want).max() / largest) if got.shape == want.shape else float("inf")


def against_pytorch(run, tensors):
    got = feed(run, tensors)
    worst = 0.0
    for name in ("logits", "last_hidden_state", "encoder_hidden"):
        if name not in tensors:
            continue
        want = tensors[name]
        if name == "logits" and "start_logits" in got:
            got[name] = numpy.stack([got["start_logits"], got["end_logits"]], -1)
        mine = got[NAMES.get(name, name)]
        if "attention_mask" in tensors and want.shape[:2] == tensors["attention_mask"].shape:
            there = tensors["attention_mask"].astype(bool)
            want, mine = want[there], mine[there]
        worst = max(worst, difference(mine, want))
    return worst


def alone_and_padded(run, tensors):
    """Texts of several lengths in one batch, padded with token 0 on the right and on the left."""
    if not any(entry.name == "attention_mask" for entry in run.get_inputs()):
        return None
    ids = tensors["input_ids"][0]
    lengths = sorted({len(ids), max(3, len(ids) // 2), 3}, reverse=True)
    written = {name: value[:1] for name, value in tensors.items() if name == "decoder_input_ids"}
    marked = "global_attention_mask" in tensors
    worst = 0.0
    for side in ("right", "left"):
        batch, mask = numpy.zeros((2, len(lengths), len(ids)), numpy.int64)
        places = []
        for row, length in enumerate(lengths):
            place = slice(0, length) if side == "right" else slice(len(ids) - length, len(ids))
            batch[row, place], mask[row, place] = ids[:length], 1
            places.append(place)
        many = {"input_ids": batch, "attention_mask": mask}
        if marked:
            many["global_attention_mask"] = numpy.zeros_like(batch)
            for row, place in enumerate(places):
                many["global_attention_mask"][row, place.start] = 1
        many |= {name: numpy.repeat(value, len(lengths), 0) for name, value in written.items()}
        together = feed(run, many)
        for row, length in enumerate(lengths):
            one = {"input_ids": ids[None, :length]} | written
            if marked:
                one["global_attention_mask"] = numpy.array([[1] + [0] * (length - 1)])
            for name, want in feed(run, one).items():
                mine = together[name][row]
                if mine.shape[:1] == (len(ids),) and name != "logits" or name == "logits" and not written:
                    mine = mine[places[row]] if mine.ndim > 1 or name != "logits" else mine
                worst = max(worst, difference(mine, want[0]))
    return worst


def main():
    siskin, *paths = sys.argv[1:]
    failed = False
    print(f"{'model':20} {'family':12} {'PyTorch':>9} {'padding':>9}  bytes")
    for folder in folders(paths):
        with tempfile.TemporaryDirectory() as place:
            out = pathlib.Path(place) / "model.onnx"
            done = subprocess.run(
                [siskin, "--no-cache", "export", folder, "-o", out, "--json"], capture_output=True, text=True
            )
            if done.returncode != 0:
                # Operations without an ONNX equivalent are reported, and are not a failure.
                rejected = "cannot be exported to ONNX" in done.stderr or "which cannot be exported" in done.stderr
                failed |= not rejected
                print(f"{folder.name:20} {'rejected: ' if rejected else ''}{done.stderr.strip()}")
                continue
            size = json.loads(done.stdout)["bytes"]
            run = session(out)
            family = next(entry.value for entry in onnx.load(out).metadata_props if entry.key == "siskin.family")
            io = folder / "io.safetensors"
            if io.is_file():
                tensors = load_file(io)
                torch = against_pytorch(run, tensors)
            else:
                words = json.loads((folder / "config.json").read_text())["vocab_size"]
                tensors = {"input_ids": numpy.random.default_rng(1).integers(1, words, (1, 40))}
                torch = None
            # MobileBERT's last token attends to the next position even if that is padding.
            padding = alone_and_padded(run, tensors) if family != "mobilebert" else None
            worst = max(torch or 0.0, padding or 0.0)
            failed |= not worst <= MOST
            shown = [f"{value:9.1e}" if value is not None else f"{'–':>9}" for value in (torch, padding)]
            mark = "" if worst <= MOST else "  beyond 1e-4"
            print(f"{folder.name:20} {family:12} {shown[0]} {shown[1]}  {size}{mark}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
