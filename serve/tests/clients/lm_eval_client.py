"""Runs `siskin serve`, evaluates it with lm-eval, and compares every item with commands of the program.

    python lm_eval_client.py SISKIN SMOLLM2

Log-likelihoods are compared with those that the logits of `siskin logits` give, generated texts with `siskin run`.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# lm-eval keeps the tasks' items in a cache, and must not look for anything on the internet.
CACHE = tempfile.mkdtemp()
os.environ |= {"HF_HOME": CACHE, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ |= {"OPENAI_API_KEY": "none", "TQDM_DISABLE": "1", "LMEVAL_LOG_LEVEL": "ERROR", "TRANSFORMERS_VERBOSITY": "error"}

import lm_eval
import numpy
import safetensors.numpy
import tokenizers
from lm_eval.tasks import TaskManager
from siskin_server import Server, json_lines

SISKIN, DECODER = sys.argv[1:3]
DATA = pathlib.Path(__file__).parent / "data"
FOLDER = pathlib.Path(CACHE)
# Log-likelihoods are sums of `float32`, in another order.
TOLERANCE = 1e-4


def evaluate(server, model, route, task, **options):
    """Returns the results of a task, and its samples in order."""
    arguments = {"model": "smollm2", "base_url": server.url + route, "num_concurrent": 4, "max_retries": 1, **options}
    found = lm_eval.simple_evaluate(
        model,
        model_args=arguments,
        tasks=[task],
        task_manager=TaskManager(include_path=str(DATA), include_defaults=False),
        bootstrap_iters=0,
        apply_chat_template=model == "local-chat-completions",
    )
    samples = sorted(found["samples"][task], key=lambda sample: sample["doc_id"])
    return found["results"][task], samples


def log_likelihood(tokenizer, context, choices):
    """Returns the sum of the log-probabilities of each choice after the context, by `siskin logits`."""
    start = len(tokenizer.encode(context, add_special_tokens=False).ids)
    rows = [tokenizer.encode(context + choice, add_special_tokens=False).ids for choice in choices]
    ids = numpy.zeros((len(rows), max(map(len, rows))), numpy.int32)
    mask = numpy.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)], mask[index, : len(row)] = row, 1
    given, results = FOLDER / "ids.safetensors", FOLDER / "logits.safetensors"
    safetensors.numpy.save_file({"input_ids": ids, "attention_mask": mask}, given)
    subprocess.run([SISKIN, "--quiet", "logits", DECODER, "--input", given, "--output", results], check=True)
    logits = safetensors.numpy.load_file(results)["logits"].astype(numpy.float64)
    log_probabilities = logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))
    return [
        sum(log_probabilities[index, at - 1, row[at]] for at in range(start, len(row)))
        for index, row in enumerate(rows)
    ]


def check_log_likelihoods(server, tokenizer_folder):
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    expected = {}
    for tokenized in [True, False]:
        options = {"tokenizer": str(tokenizer_folder), "tokenizer_backend": "huggingface", "tokenized_requests": tokenized}
        results, samples = evaluate(server, "local-completions", "/v1/completions", "siskin_choices", **options)
        assert len(samples) == 20, len(samples)
        correct, largest = 0, 0.0
        for sample in samples:
            context = sample["arguments"][0][0]
            choices = [continuation for _, continuation in sample["arguments"]]
            if context not in expected:
                expected[context] = log_likelihood(tokenizer, context, choices)
            direct = expected[context]
            found = [float(response[0]) for (response,) in sample["resps"]]
            largest = max(largest, *(abs(a - b) for a, b in zip(found, direct, strict=True)))
            assert largest < TOLERANCE, (sample["doc"], found, direct)
            choice = int(numpy.argmax(direct))
            assert int(numpy.argmax(found)) == choice, (sample["doc"], found, direct)
            is_correct = choice == sample["target"]
            assert sample["acc"] == is_correct, sample
            correct += is_correct
        assert results["acc,none"] == correct / len(samples), results
        kind = "token ids" if tokenized else "texts"
        print(
            f"local-completions with {kind}: {correct} of {len(samples)} choices are correct, all as by `siskin logits`; "
            f"the largest difference of a log-likelihood is {largest:.1e}"
        )


def check_texts(server):
    for model, route, options in [
        ("local-completions", "/v1/completions", ["--raw"]),
        ("local-chat-completions", "/v1/chat/completions", []),
    ]:
        fields = {"tokenizer_backend": "none", "tokenized_requests": False, "eos_string": "<|im_end|>"}
        results, samples = evaluate(server, model, route, "siskin_continuations", **fields)
        assert len(samples) == 6, len(samples)
        exact = 0
        for sample in samples:
            question = sample["doc"]["question"]
            limits = ["-n", "16", "--stop", "\n", "--stop", "<|im_end|>"]
            (alone,) = json_lines(SISKIN, "run", DECODER, question, *options, "--greedy", *limits, "--json")
            (((text,),), (filtered,)) = sample["resps"], sample["filtered_resps"]
            assert text == filtered == alone["text"], (question, text, alone)
            exact += text == sample["target"]
        assert results["exact_match,none"] == exact / len(samples), results
        print(f"{model}: {len(samples)} texts are those of `siskin run`, {exact} of them as expected")


def main():
    os.chdir(DATA)
    server = Server(SISKIN, DECODER)
    try:
        # Its folder has the tokenizer in the form that lm-eval needs.
        exported = FOLDER / "tokenizer"
        json_lines(SISKIN, "export", DECODER, "-o", str(exported), "--dtype", "f16", "--json")
        (exported / "model.safetensors").unlink()
        check_log_likelihoods(server, exported)
        check_texts(server)
        server.stop()
    finally:
        server.process.kill()
        shutil.rmtree(CACHE)
    print("siskin serve is evaluated by lm-eval as by its own commands")


main()
