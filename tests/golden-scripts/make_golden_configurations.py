"""Tiny random models with unusual configurations or files, and PyTorch's outputs for them.

usage: make_golden_configurations.py OUT_DIR [NAME]…

OUT_DIR is tests/data/golden-configurations; OUT_DIR/NAME/: config.json, model.safetensors and io.safetensors. What is
computed is computed by the model as it was saved, changed where a case says so, and loaded again.
"""
import json
import sys
from pathlib import Path

import torch
import transformers as T
from safetensors.torch import load_file, save_file

SEED, TOKENS, WRITTEN, VOCABULARY = 7, 19, 7, 80
ENCODER = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
               vocab_size=VOCABULARY, max_position_embeddings=64)
MODERN = dict(norm_eps=1e-3, local_attention=6, global_attn_every_n_layers=2, pad_token_id=0, cls_token_id=1,
              sep_token_id=2, bos_token_id=1, eos_token_id=2)
T5 = dict(d_model=32, d_kv=10, d_ff=48, num_layers=2, num_decoder_layers=3, num_heads=4, vocab_size=VOCABULARY,
          relative_attention_num_buckets=12, relative_attention_max_distance=14, decoder_start_token_id=0)
BART = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=2,
            encoder_ffn_dim=48, decoder_ffn_dim=40, vocab_size=VOCABULARY, max_position_embeddings=64, pad_token_id=1,
            decoder_start_token_id=2)
DECODER = ENCODER | dict(num_key_value_heads=2)


def old_names(folder, tensors, config):
    """Norms named as in the first BERT, and the pooler of another head."""
    tensors |= {"bert.pooler.dense.weight": torch.randn(32, 32), "bert.pooler.dense.bias": torch.randn(32)}
    for name in list(tensors):
        if "LayerNorm" in name:
            new = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[new] = tensors.pop(name)


def own_head(folder, tensors, config):
    """An untied head, although the configuration says that it is tied."""
    tensors["lm_head.weight"] = torch.randn_like(tensors["shared.weight"]) * 0.2
    config["tie_word_embeddings"] = True
    config["scale_decoder_outputs"] = False


def untied(folder, tensors, config):
    """A flag that the model class ignores."""
    config["tie_word_embeddings"] = False


def published(folder, tensors, config):
    """The keys of the first published LFM2 configurations."""
    attends = [layer for layer, kind in enumerate(config.pop("layer_types")) if kind == "full_attention"]
    config |= dict(block_ff_dim=config.pop("intermediate_size"), full_attn_idxs=attends, intermediate_size=40)
    config |= dict(rope_theta=config.pop("rope_parameters")["rope_theta"], tie_embedding=True)


def left_out(*keys):
    def change(folder, tensors, config):
        for key in keys:
            del config[key]
    return change


CASES = {
    "modernbert-classes": (T.ModernBertForSequenceClassification, T.ModernBertConfig(
        **ENCODER, **MODERN, classifier_pooling="mean", classifier_activation="relu", num_labels=3), None),
    "modernbert-labels": (T.ModernBertForTokenClassification, T.ModernBertConfig(
        **ENCODER, **MODERN, num_labels=3), None),
    "bert-old-labels": (T.BertForTokenClassification, T.BertConfig(**ENCODER, num_labels=5), old_names),
    "bert-untied": (T.BertForMaskedLM, T.BertConfig(**ENCODER, tie_word_embeddings=False), None),
    "roberta-relu": (T.RobertaForMaskedLM, T.RobertaConfig(**ENCODER, pad_token_id=1, hidden_act="relu"), None),
    "bigbird-answer": (T.BigBirdForQuestionAnswering, T.BigBirdConfig(
        **ENCODER, attention_type="original_full", sep_token_id=3), None),
    "longformer-labels": (T.LongformerForTokenClassification, T.LongformerConfig(
        **(ENCODER | dict(max_position_embeddings=66)), attention_window=[4, 6], pad_token_id=1), None),
    "longformer-classes": (T.LongformerForSequenceClassification, T.LongformerConfig(
        **(ENCODER | dict(max_position_embeddings=66)), attention_window=[4, 6], pad_token_id=1), None),
    "t5-encoder": (T.T5EncoderModel, T.T5Config(**T5), None),
    "t5-own-head": (T.T5ForConditionalGeneration, T.T5Config(**T5), own_head),
    "umt5": (T.UMT5ForConditionalGeneration, T.UMT5Config(**T5), untied),
    "mt5": (T.MT5ForConditionalGeneration, T.MT5Config(**T5), None),
    "bart-untied": (T.BartForConditionalGeneration, T.BartConfig(**BART, tie_word_embeddings=False), None),
    "phi-norms": (T.PhiForCausalLM, T.PhiConfig(**DECODER, qk_layernorm=True), None),
    "phi-tied": (T.PhiForCausalLM, T.PhiConfig(**DECODER, tie_word_embeddings=True), left_out("layer_norm_eps")),
    "olmo3": (T.Olmo3ForCausalLM, T.Olmo3Config(
        **DECODER, sliding_window=6, layer_types=["sliding_attention", "full_attention"], rope_scaling=dict(
            rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=3000.0)), None),
    "qwen2-moe-window": (T.Qwen2MoeForCausalLM, T.Qwen2MoeConfig(
        **(DECODER | dict(num_hidden_layers=4)), moe_intermediate_size=24, shared_expert_intermediate_size=24, num_experts=4,
        num_experts_per_tok=2, use_sliding_window=True, sliding_window=6, max_window_layers=2), left_out("layer_types")),
    "qwen3-moe-window": (T.Qwen3MoeForCausalLM, T.Qwen3MoeConfig(
        **DECODER, head_dim=12, moe_intermediate_size=24, num_experts=4, num_experts_per_tok=2, use_sliding_window=True,
        sliding_window=6), None),
    "falcon-one-norm": (T.FalconForCausalLM, T.FalconConfig(
        **ENCODER, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, bias=True,
        ffn_hidden_size=40), None),
    "lfm2-published": (T.Lfm2ForCausalLM, T.Lfm2Config(
        **(DECODER | dict(num_hidden_layers=3)), layer_types=["conv", "conv", "full_attention"], block_multiple_of=24,
        rope_parameters=dict(rope_type="default", rope_theta=3000.0)), published),
    "gemma2-short": (T.Gemma2ForCausalLM, T.Gemma2Config(**DECODER, head_dim=12), left_out(
        "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping", "rms_norm_eps")),
}


def inputs(config):
    ids = torch.randint(5, VOCABULARY, (2, TOKENS))
    mask = torch.ones_like(ids)
    given = dict(input_ids=ids, attention_mask=mask)
    if config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.randint(5, VOCABULARY, (2, WRITTEN))
    if not config.is_encoder_decoder and getattr(config, "type_vocab_size", 0) == 2:
        given["token_type_ids"] = torch.randint(0, 2, (2, TOKENS))
    return given


def outputs(result):
    if hasattr(result, "start_logits"):
        return dict(logits=torch.stack([result.start_logits, result.end_logits], dim=-1))
    made = {"logits": result.logits} if hasattr(result, "logits") else {"last_hidden_state": result.last_hidden_state}
    if getattr(result, "encoder_last_hidden_state", None) is not None:
        made["encoder_hidden"] = result.encoder_last_hidden_state
    return made


def make(name, folder):
    kind, config, change = CASES[name]
    torch.manual_seed(SEED)
    model = kind(config).eval().float()
    with torch.no_grad():
        # Norms, biases and gates are initialized to zero or one, where they have no effect on the result.
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if change:
        path, weights = folder / "config.json", folder / "model.safetensors"
        tensors, settings = load_file(weights), json.loads(path.read_text())
        change(folder, tensors, settings)
        save_file({key: value.contiguous() for key, value in tensors.items()}, weights, metadata={"format": "pt"})
        path.write_text(json.dumps(settings, indent=2) + "\n")
    model = kind.from_pretrained(folder, attn_implementation="eager").eval().float()
    given = inputs(model.config)
    if kind is T.T5EncoderModel:
        given.pop("decoder_input_ids", None)
    with torch.no_grad():
        made = outputs(model(**given))
    tensors = {key: value.contiguous() for key, value in (given | made).items()}
    save_file(tensors, folder / "io.safetensors")
    print(name, {key: list(value.shape) for key, value in tensors.items()})


for name in sys.argv[2:] or CASES:
    make(name, Path(sys.argv[1]) / name)
