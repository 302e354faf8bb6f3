"""Tiny random models that attend in ways that Transformers does not have, and what PyTorch computes from the definition.

usage: make_golden_kinds.py DATA_DIR [NAME]…

DATA_DIR is tests/data. `llama-linear` goes to golden/, `bert-linear`, `bert-mixed` and `bigbird-blocks` to
golden-texts/, `llama`, `bloom` and `phi3-longrope` to golden-kinds/: each with config.json, model.safetensors and
io.safetensors. `llama` and `bloom` hold one output for each mask, `phi3-longrope` (which Transformers does have) those
of all tokens, for which long factors hold, and those of as many as short ones hold for.
"""
import sys
from pathlib import Path

import torch
import transformers as T
from safetensors.torch import save_file
from torch.nn.functional import elu
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bloom import modeling_bloom

SEED, EPSILON = 7, 1e-6
RECENT, FIRST, PREFIX = 6, 3, 7
DECODER = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
               vocab_size=96, max_position_embeddings=128, head_dim=12, rms_norm_eps=1e-3)
ENCODER = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=80,
               max_position_embeddings=64, layer_norm_eps=1e-3)
MIXED = 5


def linear(module, query, key, value, attention_mask, **_):
    """Katharopoulos et al. 2020: weights are products of elu(x) + 1 of queries and keys."""
    query, key = elu(query) + 1, elu(key) + 1
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    weights = query @ key.transpose(2, 3)
    if getattr(module, "is_causal", False):
        weights = weights.tril()
    result = weights @ value / (weights.sum(-1, keepdim=True) + EPSILON)
    return result.transpose(1, 2).contiguous(), weights


def mixed(module, query, key, value, attention_mask, scaling=None, **_):
    """Wang et al. 2020 (Linformer): keys and values are sums over positions."""
    length = key.shape[2]
    key = module.key_positions.weight[:, :length] @ key
    value = module.value_positions.weight[:, :length] @ value
    weights = torch.softmax(query @ key.transpose(2, 3) / query.shape[-1] ** 0.5, -1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


ALL_ATTENTION_FUNCTIONS.register("linear", linear)
ALL_ATTENTION_FUNCTIONS.register("mixed", mixed)


def noisy(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval().float()


def save(folder, model, tensors):
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "io.safetensors")
    print(folder, {key: list(value.shape) for key, value in tensors.items()})


def visible(length, rule):
    query, key = torch.arange(length)[:, None], torch.arange(length)[None, :]
    mask = torch.where(rule(query, key), 0.0, torch.finfo(torch.float32).min)
    return mask[None, None].expand(2, 1, length, length)


MASKS = {
    "recent": lambda q, k: (k <= q) & ((q - k < RECENT) | (k < FIRST)),
    "prefix": lambda q, k: (k <= q) | (k < PREFIX),
}


def llama(data):
    model = noisy(T.LlamaForCausalLM._from_config(T.LlamaConfig(**DECODER), attn_implementation="eager"))
    ids = torch.randint(5, 96, (2, 23))
    outputs = {name: model(ids, attention_mask=visible(23, rule)).logits for name, rule in MASKS.items()}
    save(data / "golden-kinds/llama", model, {"input_ids": ids} | outputs)


def bloom(data):
    config = T.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=96, layer_norm_epsilon=1e-3)
    model = noisy(T.BloomForCausalLM._from_config(config, attn_implementation="eager"))
    ids, outputs = torch.randint(5, 96, (2, 23)), {}
    for name, rule in MASKS.items():
        mask = visible(23, rule)
        modeling_bloom.create_causal_mask = lambda *_, **__: mask
        outputs[name] = model(ids).logits
    save(data / "golden-kinds/bloom", model, {"input_ids": ids} | outputs)


def llama_linear(data):
    config = T.LlamaConfig(**DECODER, attention_feature_map="elu")
    model = noisy(T.LlamaForCausalLM._from_config(config, attn_implementation="linear"))
    ids = torch.randint(5, 96, (2, 23))
    save(data / "golden/llama-linear", model, {"input_ids": ids, "logits": model(ids).logits})


def texts(model, folder, lengths, positions):
    """Runs each text by itself, so that padding has no effect on the result."""
    longest = max(lengths)
    ids, mask = torch.randint(5, 80, (len(lengths), longest)), torch.zeros(len(lengths), longest, dtype=torch.int64)
    segments = torch.randint(0, 2, (len(lengths), longest))
    logits = torch.zeros(len(lengths), longest, 80)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
        one = dict(input_ids=ids[row:row + 1, :length], token_type_ids=segments[row:row + 1, :length],
                   attention_mask=mask[row:row + 1, :length])
        logits[row, :length] = model(**one).logits[0]
    save(folder, model, dict(input_ids=ids, attention_mask=mask, token_type_ids=segments, logits=logits))


def bert_linear(data):
    config = T.BertConfig(**ENCODER, attention_feature_map="elu")
    model = noisy(T.BertForMaskedLM._from_config(config, attn_implementation="linear"))
    texts(model, data / "golden-texts/bert-linear", [19, 14], 64)


def bert_mixed(data):
    config = T.BertConfig(**ENCODER, position_projections=MIXED)
    model = T.BertForMaskedLM._from_config(config, attn_implementation="mixed")
    for layer in model.bert.encoder.layer:
        for name in ("key_positions", "value_positions"):
            setattr(layer.attention.self, name, torch.nn.Linear(64, MIXED, bias=False))
    texts(noisy(model), data / "golden-texts/bert-mixed", [19, 3], 64)


def bigbird_blocks(data):
    config = T.BigBirdConfig(**ENCODER, attention_type="block_sparse", block_size=4, num_random_blocks=2)
    model = noisy(T.BigBirdForMaskedLM(config))
    # 36 tokens and fewer are seen as a whole, after which the model stays with that: the longest come first.
    texts(model, data / "golden-texts/bigbird-blocks", [46, 40, 37, 20], 64)


def phi3_longrope(data):
    factors = dict(short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=[1.0, 1.6, 2.2, 2.8, 3.4, 4.0])
    config = T.Phi3Config(**{key: value for key, value in DECODER.items() if key != "head_dim"} | dict(
        hidden_size=48, max_position_embeddings=64, original_max_position_embeddings=16, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, rope_parameters=dict(rope_type="longrope", rope_theta=5000.0, **factors)))
    model = noisy(T.Phi3ForCausalLM._from_config(config, attn_implementation="eager"))
    ids = torch.randint(5, 96, (2, 23))
    outputs = dict(logits=model(ids, use_cache=False).logits, short=model(ids[:, :16], use_cache=False).logits)
    # A cache that was begun with short factors is computed again, as `prepare_inputs_for_generation` does.
    written = model.generate(ids[:1, :12], max_new_tokens=10, min_new_tokens=10, do_sample=False)
    save(data / "golden-kinds/phi3-longrope", model, {"input_ids": ids} | outputs | {"written": written})


MAKERS = {"phi3-longrope": phi3_longrope, "llama": llama, "bloom": bloom, "llama-linear": llama_linear, "bert-linear": bert_linear,
          "bert-mixed": bert_mixed, "bigbird-blocks": bigbird_blocks}
for name in sys.argv[2:] or MAKERS:
    torch.manual_seed(SEED)
    with torch.no_grad():
        MAKERS[name](Path(sys.argv[1]))
