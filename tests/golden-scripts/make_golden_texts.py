"""Tiny random encoders in Hugging Face layout, and PyTorch's outputs for them.

usage: make_golden_texts.py OUT_DIR [NAME]…

OUT_DIR/NAME/: config.json and model.safetensors as `save_pretrained` writes them, io.safetensors. What is computed is
computed by the model as it was saved and loaded again, so that nothing is in the result that is not in the files.
"""
import json
import sys
from pathlib import Path

import torch
import transformers as T
from safetensors.torch import save_file

SEED = 7
TOKENS, WRITTEN = 19, 7
WIDTH, LAYERS, HEADS, INNER, VOCABULARY, POSITIONS = 32, 2, 4, 48, 80, 64
ENCODER = dict(hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=INNER,
               vocab_size=VOCABULARY, max_position_embeddings=POSITIONS, layer_norm_eps=1e-3)
BOTH = dict(d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS + 1, encoder_attention_heads=HEADS,
            decoder_attention_heads=2, encoder_ffn_dim=INNER, decoder_ffn_dim=INNER + 16, vocab_size=VOCABULARY,
            max_position_embeddings=POSITIONS, pad_token_id=1, decoder_start_token_id=2, scale_embedding=True)
T5 = dict(d_model=WIDTH, d_kv=10, d_ff=INNER, num_layers=LAYERS, num_decoder_layers=LAYERS + 1, num_heads=HEADS,
          vocab_size=VOCABULARY, relative_attention_num_buckets=12, relative_attention_max_distance=14,
          layer_norm_epsilon=1e-3, decoder_start_token_id=0)
DECODER = dict(hidden_size=WIDTH, num_hidden_layers=3, num_attention_heads=HEADS, num_key_value_heads=2, head_dim=10,
               intermediate_size=INNER, vocab_size=VOCABULARY, max_position_embeddings=POSITIONS, rms_norm_eps=1e-3,
               pad_token_id=0, bos_token_id=1, eos_token_id=2)
# The sentence-transformers configuration of last-token pooling.
POOLED = {"modules.json": [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                           {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}],
          "1_Pooling/config.json": {"word_embedding_dimension": WIDTH, "pooling_mode_lasttoken": True}}
MODELS = {
    "bert": (T.BertForMaskedLM, T.BertConfig(**ENCODER)),
    "bert-classes": (T.BertForSequenceClassification, T.BertConfig(**ENCODER, num_labels=3)),
    "bert-labels": (T.BertForTokenClassification, T.BertConfig(**ENCODER, num_labels=5)),
    "bert-answer": (T.BertForQuestionAnswering, T.BertConfig(**ENCODER)),
    "roberta": (T.RobertaForMaskedLM, T.RobertaConfig(**ENCODER, pad_token_id=1)),
    "roberta-classes": (T.RobertaForSequenceClassification, T.RobertaConfig(**ENCODER, pad_token_id=1, num_labels=1)),
    "distilbert": (T.DistilBertForSequenceClassification, T.DistilBertConfig(
        dim=WIDTH, n_layers=LAYERS, n_heads=HEADS, hidden_dim=INNER, vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS, num_labels=4)),
    "albert": (T.AlbertForMaskedLM, T.AlbertConfig(**(ENCODER | dict(num_hidden_layers=3)), embedding_size=20)),
    "electra": (T.ElectraForSequenceClassification, T.ElectraConfig(**ENCODER, embedding_size=20, num_labels=3)),
    "mpnet": (T.MPNetForMaskedLM, T.MPNetConfig(**ENCODER, relative_attention_num_buckets=33)),
    "modernbert": (T.ModernBertForMaskedLM, T.ModernBertConfig(
        **{key: value for key, value in ENCODER.items() if key != "layer_norm_eps"}, norm_eps=1e-3, local_attention=6,
        global_attn_every_n_layers=2, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2)),
    "bigbird": (T.BigBirdForMaskedLM, T.BigBirdConfig(**ENCODER, attention_type="original_full")),
    "nomic-bert": (T.NomicBertForMaskedLM, T.NomicBertConfig(**ENCODER, rope_parameters=dict(rope_type="default",
                                                                                       rope_theta=3000.0))),
    "gte": (T.GteForMaskedLM, T.GteConfig(**ENCODER, type_vocab_size=2, rope_parameters=dict(
        rope_type="default", rope_theta=3000.0))),
    "gemma3": (T.Gemma3TextModel, T.Gemma3TextConfig(
        **DECODER, use_bidirectional_attention=True, sliding_window=6, sliding_window_pattern=2,
        query_pre_attn_scalar=12)),
    "mistral": (T.MistralModel, T.MistralConfig(**DECODER, sliding_window=4, is_causal=False)),
    "qwen3": (T.Qwen3Model, T.Qwen3Config(**DECODER, use_sliding_window=True, sliding_window=7, max_window_layers=1)),
    "mobilebert": (T.MobileBertForMaskedLM, T.MobileBertConfig(
        **{key: value for key, value in ENCODER.items() if key != "layer_norm_eps"}, embedding_size=16,
        intra_bottleneck_size=24, true_hidden_size=24, num_feedforward_networks=3)),
    "longformer": (T.LongformerForMaskedLM, T.LongformerConfig(
        **(ENCODER | dict(max_position_embeddings=POSITIONS + 2)), attention_window=[4, 6], pad_token_id=1)),
    "t5": (T.T5ForConditionalGeneration, T.T5Config(**T5)),
    "flan-t5": (T.T5ForConditionalGeneration, T.T5Config(**T5, feed_forward_proj="gated-gelu",
                                                         tie_word_embeddings=False)),
    "switch": (T.SwitchTransformersForConditionalGeneration, T.SwitchTransformersConfig(
        **{key: value for key, value in T5.items() if key != "num_decoder_layers"}, num_decoder_layers=2, num_experts=3,
        num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, expert_capacity=5, router_jitter_noise=0.0)),
    "bart": (T.BartForConditionalGeneration, T.BartConfig(**BOTH)),
    "mbart": (T.MBartForConditionalGeneration, T.MBartConfig(**BOTH)),
    "marian": (T.MarianMTModel, T.MarianConfig(**BOTH)),
    "m2m": (T.M2M100ForConditionalGeneration, T.M2M100Config(**BOTH)),
    "pegasus": (T.PegasusForConditionalGeneration, T.PegasusConfig(**BOTH)),
    "whisper": (T.WhisperForConditionalGeneration, T.WhisperConfig(
        **{key: value for key, value in BOTH.items() if key not in ("max_position_embeddings", "scale_embedding")},
        num_mel_bins=12, max_source_positions=30, max_target_positions=40, bos_token_id=1, eos_token_id=2)),
}


def inputs(name, config):
    ids = torch.randint(5, VOCABULARY, (2, TOKENS))
    mask = torch.ones_like(ids)
    mask[1, TOKENS - 5:] = 0
    if name == "whisper":
        given = dict(input_features=torch.randn(2, 12, 60))
    else:
        given = dict(input_ids=ids, attention_mask=mask)
    if config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.randint(5, VOCABULARY, (2, WRITTEN))
    if name == "longformer":
        given["global_attention_mask"] = torch.zeros_like(ids)
        given["global_attention_mask"][:, [0, 3, 11]] = 1
    elif name == "mobilebert":
        # Its tokens attend to their neighbors, including padding.
        given["attention_mask"][:] = 1
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
    kind, config = MODELS[name]
    torch.manual_seed(SEED)
    model = kind(config).eval().float()
    with torch.no_grad():
        # Norms, biases and gates are initialized to zero or one, where they have no effect on the result.
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name == "qwen3":
        for path, content in POOLED.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(json.dumps(content, indent=2) + "\n")
    model = kind.from_pretrained(folder, attn_implementation="eager").eval().float()
    given = inputs(name, config)
    with torch.no_grad():
        made = outputs(model(**given))
    tensors = {key: value.contiguous() for key, value in (given | made).items()}
    save_file(tensors, folder / "io.safetensors")
    print(name, {key: list(value.shape) for key, value in tensors.items()})


for name in sys.argv[2:] or MODELS:
    make(name, Path(sys.argv[1]) / name)
