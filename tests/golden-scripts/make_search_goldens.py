"""Greedy, beam search and diverse beam search results of Transformers with the small random golden models.

usage: make_search_goldens.py DATA_DIR

DATA_DIR is tests/data; what is written is DATA_DIR/search/beams.json, or DATA_DIR/search/groups.json where the version
of Transformers still knows groups of beams (below 4.50; 4.46.3 was used): newer ones look for them on the network.

A case is a model, options by the names that Transformers gives them, a source or prompt, and what is found: tokens
behind the prompt and their score. Sources are tried one after the other until single and double precision agree and no
two scores are near each other: what is compared does not hang on the order of a sum.
"""
import json
import logging
import random
import sys
from pathlib import Path

import torch
import transformers as T

logging.disable(logging.WARNING)
DATA = Path(sys.argv[1])
GROUPS = tuple(int(part) for part in T.__version__.split(".")[:2]) < (4, 50)
NEAR = 2e-5
BOTH = ["t5", "flan-t5", "switch", "bart", "mbart", "marian", "m2m", "pegasus"]
ALONE = ["gpt2", "llama", "qwen3", "bloom"]
# Several tokens end a text, so that random models do end some; one of them, where groups are searched: these versions
# write the first for any. A group that is done takes from the score of padding, which is therefore never written.
ENDS = [2, 17, 33, 51]
PLAIN = dict(max_new_tokens=10, eos_token_id=ENDS)
BEAMS = [
    dict(num_beams=4, num_return_sequences=4),
    dict(num_beams=2, num_return_sequences=2, length_penalty=2.0),
    dict(num_beams=5, num_return_sequences=3, length_penalty=-0.7),
    dict(num_beams=4, num_return_sequences=4, length_penalty=0.0, early_stopping="never"),
    dict(num_beams=4, num_return_sequences=4, early_stopping=True),
    dict(num_beams=3, num_return_sequences=3, early_stopping="never", length_penalty=1.5, max_new_tokens=7),
    dict(num_beams=4, num_return_sequences=2, no_repeat_ngram_size=2),
    dict(num_beams=4, num_return_sequences=2, no_repeat_ngram_size=1, repetition_penalty=1.3),
    dict(num_beams=4, num_return_sequences=2, repetition_penalty=1.7, length_penalty=0.5),
    dict(num_beams=4, num_return_sequences=2, min_new_tokens=5),
    dict(num_beams=4, num_return_sequences=4, suppress_tokens=list(range(3, 40, 2)), begin_suppress_tokens=[4, 6, 8]),
    dict(num_beams=3, num_return_sequences=3, forced_eos_token_id=2, max_new_tokens=5, eos_token_id=2),
    dict(num_beams=2, num_return_sequences=2, bad_words_ids=[[5], [60, 61], [7, 8, 9]] + [[i] for i in range(62, 80)]),
]
FOR_BOTH = [
    dict(num_beams=4, num_return_sequences=4, forced_bos_token_id=9, begin_suppress_tokens=list(range(40, 80))),
    dict(num_beams=2, num_return_sequences=2, encoder_no_repeat_ngram_size=1),
    dict(num_beams=4, num_return_sequences=2, min_length=6, forced_eos_token_id=2, max_new_tokens=8, eos_token_id=2),
    dict(num_beams=4, num_return_sequences=2, decoder_input_ids=[0, 11, 12]),
]
GREEDY = [
    dict(),
    dict(no_repeat_ngram_size=2, repetition_penalty=1.2, suppress_tokens=list(range(20))),
    dict(min_new_tokens=8, begin_suppress_tokens=list(range(30, 70)), bad_words_ids=[[i] for i in range(70, 80)]),
]
IN_GROUPS = [
    dict(num_beams=4, num_beam_groups=2, num_return_sequences=4, diversity_penalty=0.5),
    dict(num_beams=4, num_beam_groups=4, num_return_sequences=4, diversity_penalty=1.5, length_penalty=0.5),
    dict(num_beams=6, num_beam_groups=3, num_return_sequences=5, diversity_penalty=0.2, early_stopping=True),
    dict(num_beams=6, num_beam_groups=2, num_return_sequences=6, diversity_penalty=0.8, no_repeat_ngram_size=2,
         repetition_penalty=1.2),
    dict(num_beams=4, num_beam_groups=2, num_return_sequences=4, diversity_penalty=0.3, early_stopping="never",
         length_penalty=2.0),
]


def load(name):
    both = name in BOTH
    kind = T.AutoModelForSeq2SeqLM if both else T.AutoModelForCausalLM
    model = kind.from_pretrained(DATA / ("golden-texts" if both else "golden") / name).eval()
    # What is asked for is all that is.
    model.generation_config = T.GenerationConfig(
        pad_token_id=1, decoder_start_token_id=getattr(model.config, "decoder_start_token_id", None))
    return model, model.config.get_text_config().vocab_size


def generate(model, source, options):
    # With a cache, models whose decoder has more layers than their encoder fail; without one, experts leave out the
    # tokens of a long text.
    caches = model.config.model_type == "switch_transformers"
    options = dict(options)
    if "decoder_input_ids" in options:
        start = [model.generation_config.decoder_start_token_id] + options["decoder_input_ids"][1:]
        options["decoder_input_ids"] = torch.tensor([start])
    given = torch.tensor([source])
    with torch.no_grad():
        out = model.generate(given, attention_mask=torch.ones_like(given), do_sample=False, use_cache=caches,
                             output_scores=True, return_dict_in_generate=True, **options)
    encodes = model.config.is_encoder_decoder
    prompt = options["decoder_input_ids"].shape[1] if "decoder_input_ids" in options else 1
    prompt = prompt if encodes else len(source)
    found = []
    for row, tokens in enumerate(out.sequences.tolist()):
        tokens = tokens[prompt:]
        if options.get("num_beams", 1) == 1:
            ends = [place for place, token in enumerate(tokens) if token in options["eos_token_id"]]
            found.append({"tokens": tokens[:ends[0] + 1] if ends else tokens})
        else:
            count = int((out.beam_indices[row] >= 0).sum())
            count = tokens.index(options["eos_token_id"]) + 1 if GROUPS and options["eos_token_id"] in tokens else count
            found.append({"tokens": tokens[:count], "score": float(out.sequences_scores[row])})
    return found


def is_sure(found, exact):
    if [one["tokens"] for one in found] != [one["tokens"] for one in exact]:
        return False
    scores = [one.get("score", 0.0) for one in found]
    return len(scores) == 1 or all(a - b > NEAR for a, b in zip(scores, scores[1:])) and min(scores) > -1e6


def nearly(name):
    """The model in f64, or where diverse beam search does not support that, with slightly perturbed weights."""
    model = load(name)[0]
    if not GROUPS:
        return model.double()
    torch.manual_seed(1)
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 1 + 2e-6 * torch.randn_like(weights)
    return model


cases = []
for name in [name for name in BOTH + ALONE if not GROUPS or name in ("t5", "bart", "marian", "m2m", "gpt2", "llama")]:
    both = name in BOTH
    (model, vocabulary), exact = load(name), nearly(name)
    kinds = IN_GROUPS if GROUPS else BEAMS + (FOR_BOTH if both else []) + GREEDY
    for number, kind in enumerate(kinds):
        options = PLAIN | kind
        dice = random.Random(f"{name} {number}")
        if GROUPS:
            options |= dict(eos_token_id=dice.choice(ENDS), suppress_tokens=[1])
        for _ in range(200):
            source = [dice.randrange(3, vocabulary) for _ in range(dice.randrange(3, 12))]
            found = generate(model, source, options)
            if is_sure(found, generate(exact, source, options)):
                break
        else:
            print("no sure case:", name, options, flush=True)
            continue
        folder = "golden-texts" if both else "golden"
        cases.append({"model": f"{folder}/{name}", "options": options, "source": source, "found": found})
OUT = DATA / "search"
OUT.mkdir(exist_ok=True)
lines = ",\n".join(json.dumps(case) for case in cases)
(OUT / ("groups.json" if GROUPS else "beams.json")).write_text(f"[\n{lines}\n]\n")
ended = sum(found["tokens"][-1] in ENDS for case in cases for found in case["found"])
print(len(cases), "cases;", ended, "of", sum(len(case["found"]) for case in cases), "texts ended")
