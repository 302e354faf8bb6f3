#!/usr/bin/env python3
"""Writes tiny models with early exits, and the outputs of models with skipped layers.

Usage: python3 tests/golden-scripts/make_exits.py tests/data

golden-exits/deebert, golden-exits/pabee, golden-exits/pabee-albert: a BERT, or an ALBERT, with a head on each layer, as
DeeBERT (a pooler and a classifier each) and PABEE (a classifier each, one pooler) name them: config.json,
model.safetensors, expected.json.
golden-exits/skipped.safetensors: MODEL.LAYER: the last token's logits of the first row (decoders), or all hidden states
of the first row (encoders), with that layer replaced by the identity.
golden-exits/words.json: a tokenizer of 80 words for BERT; golden-exits/answers.json: what the likeliest answers are in
texts that are read in windows.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForQuestionAnswering
from transformers import AlbertConfig, AlbertModel, BertConfig, BertModel, PreTrainedTokenizerFast

DATA = pathlib.Path(sys.argv[1])
OUT = DATA / "golden-exits"
WORDS = 80
LABELS = 3


def words():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = {token: i for i, token in enumerate(special + [f"w{i}" for i in range(len(special), WORDS)])}
    added = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for i, token in enumerate(special)
    ]
    begin, end = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": [begin, first, end], "pair": [begin, first, end, *second],
            "special_tokens": {
                "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]},
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab},
    }


def entropy(logits):
    """DeeBERT's entropy: logsumexp of the logits minus the mean logit under the softmax."""
    exponentials = torch.exp(logits)
    total = exponentials.sum()
    return (torch.log(total) - (logits * exponentials).sum() / total).item()


def deebert(scores, final, threshold):
    for layer, logits in enumerate(scores):
        if entropy(logits) < threshold:
            return layer + 1, logits
    return len(scores), final


def confident(scores, final, threshold):
    for layer, logits in enumerate(scores):
        if torch.softmax(logits, 0).max().item() >= threshold:
            return layer + 1, logits
    return len(scores), final


def pabee(scores, patience):
    before, counter = None, 0
    for layer, logits in enumerate(scores):
        counter = counter + 1 if before is not None and logits.argmax() == before.argmax() else 0
        before = logits
        if counter == patience:
            return layer + 1, logits
    return len(scores), before


def early(name, seed):
    torch.manual_seed(seed)
    albert = name.endswith("albert")
    config = (AlbertConfig if albert else BertConfig)(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=5, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, layer_norm_eps=1e-3, initializer_range=0.25, num_labels=LABELS,
        **({"embedding_size": 16} if albert else {}))
    bert = (AlbertModel if albert else BertModel)(config).eval()
    prefix = "albert" if albert else "bert"
    pooler_name = "albert.pooler" if albert else "bert.pooler.dense"
    linear = lambda *size: torch.randn(*size) * 0.35
    weights = {f"{prefix}.{key}": value for key, value in bert.state_dict().items() if "position_ids" not in key}
    classifiers = []
    for layer in range(config.num_hidden_layers):
        weight, bias = linear(LABELS, 32), linear(LABELS)
        if name != "deebert":
            weights[f"classifiers.{layer}.weight"], weights[f"classifiers.{layer}.bias"] = weight, bias
            pooler = (weights[f"{pooler_name}.weight"], weights[f"{pooler_name}.bias"])
        else:
            place = f"bert.encoder.highway.{layer}"
            pooler = linear(32, 32), linear(32)
            weights[f"{place}.pooler.dense.weight"], weights[f"{place}.pooler.dense.bias"] = pooler
            weights[f"{place}.classifier.weight"], weights[f"{place}.classifier.bias"] = weight, bias
        classifiers.append((pooler, weight, bias))
    if name == "deebert":
        weights["classifier.weight"], weights["classifier.bias"] = linear(LABELS, 32), linear(LABELS)
    generator = torch.Generator().manual_seed(seed)
    texts, all_scores, finals = [], [], []
    for index in range(12):
        ids = torch.randint(5, WORDS, (2 + 3 * index,), generator=generator).tolist()
        texts.append(" ".join(f"w{i}" for i in ids))
        with torch.no_grad():
            out = bert(input_ids=torch.tensor([[2, *ids, 3]]), output_hidden_states=True)
        scores = []
        for hidden, ((w, b), weight, bias) in zip(out.hidden_states[1:], classifiers):
            pooled = torch.tanh(hidden[0, 0] @ w.T + b)
            scores.append(pooled @ weight.T + bias)
        all_scores.append(scores)
        final = scores[-1]
        if name == "deebert":
            final = out.pooler_output[0] @ weights["classifier.weight"].T + weights["classifier.bias"]
        finals.append(final)
    runs = []
    for rule, values in [("entropy", [0.3, 0.6, 0.9]), ("confidence", [0.6, 0.8, 0.95]), ("patience", [1, 2, 3])]:
        for value in values:
            one = {"entropy": deebert, "confidence": confident}.get(rule)
            left = [one(s, f, value) if one else pabee(s, value) for s, f in zip(all_scores, finals)]
            if rule == "patience" and name == "deebert":
                # Sequences without an early exit use the model's own head.
                streak = [pabee(s, value) for s in all_scores]
                left = [left_one if reached(s, value) else (len(s), f)
                        for left_one, s, f in zip(streak, all_scores, finals)]
            runs.append({"rule": rule, "value": value, "layers": [layers for layers, _ in left],
                         "probabilities": [torch.softmax(logits.double(), 0).tolist() for _, logits in left]})
            print(name, rule, value, runs[-1]["layers"])
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    saved = config.to_dict() | {"id2label": {str(i): f"LABEL_{i}" for i in range(LABELS)}}
    (folder / "config.json").write_text(json.dumps(saved, indent=1, sort_keys=True, default=str) + "\n")
    save_file({key: value.contiguous().clone() for key, value in weights.items()}, folder / "model.safetensors")
    (folder / "expected.json").write_text(json.dumps({"texts": texts, "runs": runs}) + "\n")


def reached(scores, patience):
    """Returns whether the patience was reached before the last layer."""
    counter, before = 0, None
    for logits in scores:
        counter = counter + 1 if before is not None and logits.argmax() == before else 0
        before = logits.argmax()
        if counter == patience:
            return True
    return False


LAYERS = ["model.layers", "transformer.h", "gpt_neox.layers", "transformer.blocks", "encoder.layer", "layers",
          "transformer.layer"]


def layers_of(model):
    for path in LAYERS:
        part = model
        for name in path.split("."):
            part = getattr(part, name, None)
        if part is not None:
            return part
    return None


def skip(names, auto, folder):
    for name in names:
        place = DATA / folder / name
        io = load_file(place / "io.safetensors")
        ids = io["input_ids"][:1]
        if "attention_mask" in io:
            ids = ids[:, : int(io["attention_mask"][0].sum())]
        for number in range(2):
            model = auto.from_pretrained(place, dtype=torch.float32, attn_implementation="eager").eval()
            layers = layers_of(model)
            layer = layers[number]
            tuples = []
            hook = layer.register_forward_hook(lambda module, inputs, output: tuples.append(isinstance(output, tuple)))
            arguments = {"use_cache": False} if auto is AutoModelForCausalLM else {}
            for more in ("token_type_ids", "global_attention_mask"):
                if more in io:
                    arguments[more] = io[more][:1, : ids.shape[1]]
            with torch.no_grad():
                model(input_ids=ids, **arguments)
                hook.remove()
                was_tuple = tuples[0]
                layer.register_forward_hook(
                    lambda module, inputs, keywords, output: (
                        (inputs[0] if inputs else keywords["hidden_states"]),) if was_tuple
                    else (inputs[0] if inputs else keywords["hidden_states"]), with_kwargs=True)
                out = model(input_ids=ids, **arguments)
            numbers = out.logits[0, -1] if auto is AutoModelForCausalLM else out.last_hidden_state[0].flatten()
            yield f"{name}.{number}", numbers.contiguous().clone()


def answers():
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(OUT / "words.json"), cls_token="[CLS]", sep_token="[SEP]",
                                        pad_token="[PAD]", unk_token="[UNK]")
    model = AutoModelForQuestionAnswering.from_pretrained(DATA / "golden-texts" / "bert-answer").eval()
    question = "w10 w11 w12 w13"
    cases = []
    for seed in range(6):
        text = " ".join(f"w{5 + (i * i * 7 + i * (3 + seed) + seed) % 75}" for i in range(150))
        read = tokenizer(question, text, truncation="only_second", max_length=64, stride=32,
                         return_token_type_ids=True, return_overflowing_tokens=True, return_offsets_mapping=True)
        best = (-1.0, 0, 0)
        for window, ids in enumerate(read["input_ids"]):
            with torch.no_grad():
                out = model(input_ids=torch.tensor([ids]),
                            token_type_ids=torch.tensor([read["token_type_ids"][window]]))
            begins, ends = (torch.softmax(scores[0].double(), 0) for scores in (out.start_logits, out.end_logits))
            inside = [i for i, part in enumerate(read.sequence_ids(window)) if part == 1]
            spans = read["offset_mapping"][window]
            # The first of ties.
            best = max([best] + [((begins[i] * ends[j]).item(), spans[i][0], spans[j][1])
                                 for i in inside for j in inside if i <= j < i + 30], key=lambda found: found[0])
        probability, start, end = best
        cases.append({"text": text, "start": start, "end": end, "probability": probability})
    (OUT / "answers.json").write_text(json.dumps({"question": question, "cases": cases}) + "\n")


OUT.mkdir(parents=True, exist_ok=True)
(OUT / "words.json").write_text(json.dumps(words()) + "\n")
early("deebert", 3)
early("pabee", 4)
early("pabee-albert", 6)
answers()
DECODERS = ["llama", "smollm3", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi", "phi3", "gpt2", "gpt-neox",
            "bloom", "mpt", "olmo2", "granite", "starcoder2", "mixtral", "qwen3-moe", "granite-moe", "olmoe"]
ENCODERS = ["bert", "roberta", "distilbert", "electra", "mpnet", "mobilebert", "longformer", "bigbird"]
skipped = dict(skip(DECODERS, AutoModelForCausalLM, "golden"))
for name in ENCODERS:
    try:
        skipped |= dict(skip([name], AutoModel, "golden-texts"))
    except Exception as error:
        print(name, "left out:", type(error).__name__, error)
save_file(skipped, OUT / "skipped.safetensors")
print(len(skipped), "results without a layer")
