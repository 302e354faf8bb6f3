"""Compares the package with sentence-transformers, Transformers and lm-evaluation-harness, run beside it on the same weights.

Usage: python compare.py SISKIN SMOLLM2 MINILM FOLDER

SISKIN is the command, SMOLLM2 a GGUF file, MINILM a folder; FOLDER is for temporary files.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TQDM_DISABLE="1")

import lm_eval
import numpy as np
import sentence_transformers
import siskin
import siskin.lm_eval
import siskin.pipelines
import siskin.sentence_transformers
import torch
import transformers
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

COMMAND, SMOLLM2, MINILM, FOLDER = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])

TEXTS = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "Zwei Vögel singen im Garten, 42 € das Stück!",
    "一只小鸟",
    "",
    "long " * 400,
]


def near(what: str, found: Any, expected: Any, tolerance: float) -> None:
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape and found.size > 0, what
    difference = float(np.abs(found - expected).max())
    print(f"{what}: at most {difference:.1e} apart (allowed: {tolerance:.0e})")
    assert difference <= tolerance, what


def embeddings() -> None:
    theirs = sentence_transformers.SentenceTransformer(str(MINILM), device="cpu")
    ours = siskin.sentence_transformers.SentenceTransformer(MINILM, cache="off")
    for options in ({}, {"normalize_embeddings": True}, {"truncate_dim": 128}):
        found, expected = ours.encode(TEXTS, **options), theirs.encode(TEXTS, **options)
        assert found.shape == expected.shape and found.dtype == expected.dtype
        near(f"sentence-transformers {options}", found, expected, 1e-5)
    found, expected = (model.encode(TEXTS, precision="ubinary") for model in (ours, theirs))
    # A component of about zero may have either sign.
    assert np.unpackbits(found ^ expected).sum() <= 2
    vectors = theirs.encode(TEXTS)
    near("similarity", ours.similarity(vectors, vectors), theirs.similarity(vectors, vectors), 1e-5)


def word_piece() -> transformers.PreTrainedTokenizerFast:
    """Returns a tokenizer whose vocabulary is letters and a few words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = [*special, *letters, *("##" + letter for letter in letters), "sky", "bird", "##ing", "is", ".", "?", ","]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    tokenizer.decoder = decoders.WordPiece()
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=128,
        **{f"{name}_token": token for name, token in names.items()},
    )


def bert(kind: type, name: str, **options: Any) -> Path:
    """Saves a small BERT with random weights that are large enough for different answers."""
    torch.manual_seed(len(name))
    tokenizer = word_piece()
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=128,
        **options,
    )
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4.0)
    folder = FOLDER / name
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the numbers and texts of nested results with their places."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from flat(value[key], f"{place}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from flat(item, f"{place}[{index}]")
    else:
        yield place, value


def letters(text: str) -> str:
    """Returns a text without what decoding changes: case, spaces, marks of word pieces and special tokens."""
    return re.sub(r"\[[A-Z]+\]|##|\s", "", text).lower()


def same_results(what: str, found: Any, expected: Any) -> None:
    found, expected = list(flat(found)), list(flat(expected))
    assert [place for place, _ in found] == [place for place, _ in expected], (what, found, expected)
    numbers = []
    for (place, ours), (_, theirs) in zip(found, expected):
        if isinstance(theirs, (float, np.floating)):
            numbers.append((ours, float(theirs)))
        elif place.endswith((".word", ".sequence", ".token_str")):
            # Ours are parts of the text, theirs are decoded tokens.
            assert letters(ours) == letters(theirs), (what, place, ours, theirs)
        else:
            assert ours == theirs, (what, place, ours, theirs)
    near(f"pipeline {what}: {len(found)} values", [a for a, _ in numbers], [b for _, b in numbers], 1e-5)


def pipelines() -> None:
    labels = {0: "bad", 1: "fair", 2: "good"}
    entities = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
    classifier = bert(transformers.BertForSequenceClassification, "classes", id2label=labels, num_labels=3)
    tagger = bert(transformers.BertForTokenClassification, "labels", id2label=entities, num_labels=5)
    masked = bert(transformers.BertForMaskedLM, "masks")
    texts = ["The sky is a bird", "bird, bird.", "is singing?"]

    def both(task: str, folder: Path, call: Callable[[Any], Any]) -> None:
        theirs = transformers.pipeline(task, model=str(folder), device="cpu")
        same_results(task, call(siskin.pipelines.pipeline(task, model=folder, cache="off")), call(theirs))

    both("text-classification", classifier, lambda pipe: [pipe(texts), pipe(texts[0]), pipe(texts, top_k=None)])
    both("token-classification", tagger, lambda pipe: pipe(texts, aggregation_strategy="simple"))
    both("fill-mask", masked, lambda pipe: [pipe("the [MASK] is a bird"), pipe("[MASK] is", top_k=3)])


def harness() -> None:
    """Compares with the harness's own backend, on SmolLM2 exported with f32 weights."""
    folder = FOLDER / "smollm2"
    subprocess.run([COMMAND, "export", str(SMOLLM2), "-o", str(folder), "--dtype", "f32", "--quiet", "--force"], check=True)
    tasks = FOLDER / "tasks"
    tasks.mkdir(exist_ok=True)
    questions = [
        {"question": "The capital of France is", "choices": [" Paris", " Rome", " a fish"], "answer": 0},
        {"question": "Two plus two is", "choices": [" five", " four", " seven and a half"], "answer": 1},
        {"question": "Birds can", "choices": [" fly", " swim under the ice for years", " read"], "answer": 0},
        {"question": "Water is made of hydrogen and", "choices": [" gold", " oxygen"], "answer": 1},
    ]
    rows = {"choices": questions, "text": [{"text": text} for text in TEXTS[:4]], "prompt": questions}
    for name, lines in rows.items():
        (tasks / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    head = "dataset_path: json\ntest_split: test\ndataset_kwargs:\n  data_files:\n    test: {file}\n"
    (tasks / "choices.yaml").write_text(
        "task: choices\noutput_type: multiple_choice\n"
        + head.format(file=tasks / "choices.jsonl")
        + "doc_to_text: '{{question}}'\ndoc_to_target: answer\ndoc_to_choice: choices\ntarget_delimiter: ''\n"
        + "metric_list:\n  - metric: acc\n  - metric: acc_norm\n"
    )
    (tasks / "text.yaml").write_text(
        "task: text\noutput_type: loglikelihood_rolling\n"
        + head.format(file=tasks / "text.jsonl")
        + "doc_to_text: ''\ndoc_to_target: '{{text}}'\n"
        + "metric_list:\n  - metric: word_perplexity\n  - metric: bits_per_byte\n"
    )
    (tasks / "prompt.yaml").write_text(
        "task: prompt\noutput_type: generate_until\n"
        + head.format(file=tasks / "prompt.jsonl")
        + "doc_to_text: '{{question}}'\ndoc_to_target: '{{choices[answer]}}'\n"
        + "generation_kwargs:\n  until: ['.']\n  max_gen_toks: 12\n  do_sample: false\n"
        + "metric_list:\n  - metric: exact_match\n"
    )
    manager = TaskManager(include_path=str(tasks), include_defaults=False)

    def evaluate(model: Any) -> dict[str, Any]:
        results = lm_eval.simple_evaluate(
            model=model, tasks=["choices", "text", "prompt"], task_manager=manager, log_samples=True, bootstrap_iters=0
        )
        assert results is not None
        return results

    ours = evaluate(siskin.lm_eval.SiskinLM(str(folder), cache="off"))
    theirs = evaluate(HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=1))
    for task in ("choices", "text", "prompt"):
        found = {key: value for key, value in ours["results"][task].items() if isinstance(value, float)}
        expected = {key: value for key, value in theirs["results"][task].items() if isinstance(value, float)}
        assert found.keys() == expected.keys()
        scale = max(1.0, *expected.values()) if expected else 1.0
        near(f"lm-eval {task} {sorted(found)}", [found[key] / scale for key in found], [expected[key] / scale for key in found], 1e-4)
    responses = [
        [[response for sample in results["samples"][task] for response in sample["resps"]] for task in ("choices", "text")]
        for results in (ours, theirs)
    ]
    numbers = [[value for _, value in flat(kind) if isinstance(value, float)] for kind in responses]
    near(f"lm-eval: {len(numbers[0])} log-likelihoods, relative", np.divide(numbers[0], numbers[1]), np.ones(len(numbers[1])), 1e-4)
    texts = [[sample["resps"] for sample in results["samples"]["prompt"]] for results in (ours, theirs)]
    assert texts[0] == texts[1], texts
    print(f"lm-eval: the same {len(texts[0])} greedy texts")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    embeddings()
    pipelines()
    harness()
