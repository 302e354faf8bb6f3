"""Small CTranslate2 models, written by its converter, with their dequantized weights.

usage: make_ctranslate2.py OUT_DIR SEEDS_DIR

OUT_DIR/NAME/: a model with random weights as `ctranslate2.converters` writes it; OUT_DIR/NAME.safetensors: the weights of
the Hugging Face model that it was made from, under the names of a .siskin file, rounded as the model's type rounds them.
OUT_DIR/NAME.io.safetensors, for models that read a text at once: inputs, and what PyTorch computes with those weights.
OUT_DIR/types.bin with types.safetensors: one variable of each type, and an alias. SEEDS_DIR: small files for fuzzing.

Needs ctranslate2, transformers and torch.
"""
import json
import shutil
import sys
import tempfile
from pathlib import Path

import ctranslate2
import numpy as np
import torch
import transformers
from ctranslate2.converters import TransformersConverter
from ctranslate2.specs import model_spec
from safetensors.numpy import save_file

# The converter imports them, and newer versions of transformers moved them.
transformers.GPTNeoXConfig.rotary_pct = 0.25
transformers.GPTNeoXForCausalLM.embed_out = property(lambda self: self.lm_head)

OUT, SEEDS = Path(sys.argv[1]), Path(sys.argv[2])
VOCABULARY = 20
WIDTH, HEADS, FEED, POSITIONS = 8, 2, 12, 10


class Tokenizer:
    bos_token, eos_token, unk_token = "<s>", "</s>", "<unk>"
    special_tokens_map = {}
    additional_special_tokens = []

    def __init__(self, pad):
        tokens = ["<s>", "</s>", "<unk>"] + [f"t{i}" for i in range(VOCABULARY - 4)]
        self.tokens = tokens + ["<pad>"] if pad else ["<pad>"] + tokens
        self.pad_token = "<pad>"

    def get_vocab(self):
        return {token: id for id, token in enumerate(self.tokens)}

    def convert_ids_to_tokens(self, id):
        return self.tokens[id]


class Converter(TransformersConverter):
    pad_last = False

    def load_tokenizer(self, *arguments, **named):
        return Tokenizer(self.pad_last)


def bart_names(stack, ours, cross):
    """Names of a layer of Bart, Marian and Whisper: ours to Hugging Face's."""
    names = {f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"} | {"attn_o": "self_attn.out_proj"}
    if cross:
        names |= {f"cross_attn_{x}": f"encoder_attn.{x}_proj" for x in "qkv"}
        names |= {"cross_attn_o": "encoder_attn.out_proj", "cross_attn_norm": "encoder_attn_layer_norm"}
    names |= {"attn_norm": "self_attn_layer_norm", "ffn_norm": "final_layer_norm", "ffn_up": "fc1", "ffn_down": "fc2"}
    return {f"{ours}.blk.{layer}.{name}": f"{stack}.layers.{layer}.{source}"
            for layer in range(2 if cross else 1) for name, source in names.items()}


def bart_model(extra):
    return bart_names("model.encoder", "enc", False) | bart_names("model.decoder", "dec", True) | extra


def t5_names(stack, cross, gated):
    names = {f"attn_{x}": f"layer.0.SelfAttention.{x}" for x in "qkvo"} | {"attn_norm": "layer.0.layer_norm"}
    if cross:
        names |= {f"cross_attn_{x}": f"layer.1.EncDecAttention.{x}" for x in "qkvo"}
        names |= {"cross_attn_norm": "layer.1.layer_norm"}
    last = 2 if cross else 1
    feed = {"ffn_gate": "wi_0", "ffn_up": "wi_1", "ffn_down": "wo"} if gated else {"ffn_up": "wi", "ffn_down": "wo"}
    names |= {name: f"layer.{last}.DenseReluDense.{source}" for name, source in feed.items()}
    names |= {"ffn_norm": f"layer.{last}.layer_norm"}
    layers = {f"{stack[:3]}.blk.{layer}.{name}": f"{stack}.block.{layer}.{source}"
              for layer in range(2 if cross else 1) for name, source in names.items()}
    bias = {f"{stack[:3]}.blk.0.attn_rel_b": f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"}
    return layers | bias | {f"{stack[:3]}.output_norm": f"{stack}.final_layer_norm"}


LLAMA = {f"blk.0.attn_{x}": f"model.layers.0.self_attn.{x}_proj" for x in "qkv"} | {
    "blk.0.attn_output": "model.layers.0.self_attn.o_proj", "blk.0.attn_norm": "model.layers.0.input_layernorm",
    "blk.0.ffn_norm": "model.layers.0.post_attention_layernorm", "blk.0.ffn_gate": "model.layers.0.mlp.gate_proj",
    "blk.0.ffn_up": "model.layers.0.mlp.up_proj", "blk.0.ffn_down": "model.layers.0.mlp.down_proj",
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
GEMMA2 = LLAMA | {
    "blk.0.post_attention_norm": "model.layers.0.post_attention_layernorm",
    "blk.0.ffn_norm": "model.layers.0.pre_feedforward_layernorm",
    "blk.0.post_ffw_norm": "model.layers.0.post_feedforward_layernorm"}
del GEMMA2["output"]
NEOX = {f"blk.0.attn_{x}": f"gpt_neox.layers.0.attn.{x}_proj" for x in "qkv"} | {
    "blk.0.attn_output": "gpt_neox.layers.0.attention.dense", "blk.0.attn_norm": "gpt_neox.layers.0.input_layernorm",
    "blk.0.ffn_norm": "gpt_neox.layers.0.post_attention_layernorm",
    "blk.0.ffn_up": "gpt_neox.layers.0.mlp.dense_h_to_4h", "blk.0.ffn_down": "gpt_neox.layers.0.mlp.dense_4h_to_h",
    "token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "lm_head"}
BERT = {f"blk.0.attn_{x[0]}": f"encoder.layer.0.attention.self.{x}" for x in ("query", "key", "value")} | {
    "blk.0.attn_output": "encoder.layer.0.attention.output.dense",
    "blk.0.attn_output_norm": "encoder.layer.0.attention.output.LayerNorm",
    "blk.0.ffn_up": "encoder.layer.0.intermediate.dense", "blk.0.ffn_down": "encoder.layer.0.output.dense",
    "blk.0.layer_output_norm": "encoder.layer.0.output.LayerNorm", "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings", "position_embd": "embeddings.position_embeddings",
    "token_embd_norm": "embeddings.LayerNorm", "cls": "pooler.dense"}

SIZES = dict(d_model=WIDTH, encoder_layers=1, decoder_layers=2, encoder_attention_heads=HEADS,
             decoder_attention_heads=HEADS, encoder_ffn_dim=FEED, decoder_ffn_dim=FEED, vocab_size=VOCABULARY)
T5 = dict(d_model=WIDTH, d_kv=4, d_ff=FEED, num_layers=1, num_decoder_layers=2, num_heads=HEADS,
          vocab_size=VOCABULARY, relative_attention_num_buckets=8)
MODELS = [
    # name, class, configuration, keys that newer versions no longer write, quantization, names
    ("whisper-int8", "WhisperForConditionalGeneration", transformers.WhisperConfig(
        **SIZES, num_mel_bins=5, max_source_positions=6, max_target_positions=POSITIONS, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1), {}, "int8",
     bart_model({"token_embd": "model.decoder.embed_tokens", "enc.conv1": "model.encoder.conv1",
                 "enc.conv2": "model.encoder.conv2", "enc.output_norm": "model.encoder.layer_norm",
                 "dec.output_norm": "model.decoder.layer_norm", "enc.position_embd": "model.encoder.embed_positions",
                 "dec.position_embd": "model.decoder.embed_positions"})),
    ("marian-int16", "MarianMTModel", transformers.MarianConfig(
        **SIZES, max_position_embeddings=POSITIONS, pad_token_id=VOCABULARY - 1, bos_token_id=0, eos_token_id=1,
        decoder_start_token_id=VOCABULARY - 1, forced_eos_token_id=1), {}, "int16",
     bart_model({"token_embd": "model.shared", "output.bias": "final_logits_bias",
                 "enc.position_embd": "model.encoder.embed_positions",
                 "dec.position_embd": "model.decoder.embed_positions"})),
    ("bart-bfloat16", "BartForConditionalGeneration", transformers.BartConfig(
        **SIZES, max_position_embeddings=POSITIONS, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        forced_eos_token_id=2), {"normalize_before": False, "normalize_embedding": True}, "bfloat16",
     bart_model({"token_embd": "model.shared", "output.bias": "final_logits_bias",
                 "enc.token_embd_norm": "model.encoder.layernorm_embedding",
                 "dec.token_embd_norm": "model.decoder.layernorm_embedding",
                 "enc.position_embd": "model.encoder.embed_positions",
                 "dec.position_embd": "model.decoder.embed_positions"})),
    ("t5-float32", "T5ForConditionalGeneration", transformers.T5Config(**T5), {}, "float32",
     t5_names("encoder", False, False) | t5_names("decoder", True, False) | {"token_embd": "shared"}),
    ("flan-t5-int8_float16", "T5ForConditionalGeneration", transformers.T5Config(
        **T5, feed_forward_proj="gated-gelu"), {}, "int8_float16",
     t5_names("encoder", False, True) | t5_names("decoder", True, True) | {"token_embd": "shared"}),
    ("bert-float16", "BertModel", transformers.BertConfig(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS, intermediate_size=FEED,
        vocab_size=VOCABULARY, max_position_embeddings=POSITIONS), {"position_embedding_type": "absolute"}, "float16",
     BERT),
    ("llama-int8", "LlamaForCausalLM", transformers.LlamaConfig(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS, num_key_value_heads=1,
        intermediate_size=FEED, vocab_size=VOCABULARY, max_position_embeddings=POSITIONS), {}, "int8_float32", LLAMA),
    ("gemma2-int8_bfloat16", "Gemma2ForCausalLM", transformers.Gemma2Config(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=3,
        intermediate_size=FEED, vocab_size=VOCABULARY, max_position_embeddings=POSITIONS), {}, "int8_bfloat16", GEMMA2),
    ("gpt-neox-int8", "GPTNeoXForCausalLM", transformers.GPTNeoXConfig(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS, intermediate_size=FEED,
        vocab_size=VOCABULARY, max_position_embeddings=POSITIONS), {}, "int8", NEOX),
]


def rounded(values, kind, amax):
    """A weight after rounding to its type; with int16, `amax` is that of the whole variable."""
    if kind.startswith("int8"):
        rows = values.reshape(len(values), -1)
        amax = np.amax(np.absolute(rows), axis=1)
        amax[amax == 0] = 127.0
        scale = np.expand_dims(127.0 / amax, 1)
        return (np.rint(rows * scale).astype(np.int8).astype(np.float32) * (np.float32(1) / scale)).reshape(values.shape)
    if kind == "int16":
        scale = np.float32(2**10 / amax)
        return np.rint(values * scale).astype(np.int16).astype(np.float32) * (np.float32(1) / scale)
    return floats(values, kind)


def floats(values, kind):
    if kind.endswith("bfloat16"):
        return torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    return values.astype(np.float16).astype(np.float32) if kind.endswith("float16") else values


def expected(weights, names, kind):
    for name, source in names.items():
        for end in ("weight", "bias"):
            values = weights.get(f"{source}.{end}", weights.get(source) if name.endswith(f".{end}") else None)
            if values is None:
                continue
            if source == "final_logits_bias":
                values = values.squeeze(0)
            plain = end == "bias" or values.ndim == 1 or "position_embd" in name or "attn_rel_b" in name
            fused = [source]
            for part in ("attn.q_proj", "attn.k_proj", "attn.v_proj"):
                if source.endswith(part):
                    parts = "kv" if "encoder_attn" in source and not part.endswith("q_proj") else "qkv"
                    parts = "q" if "encoder_attn" in source and part.endswith("q_proj") else parts
                    fused = [source[: -len(part)] + f"attn.{x}_proj" for x in parts]
            amax = None if plain else max(np.amax(np.absolute(weights[f"{x}.weight"])) for x in fused)
            values = floats(values, kind) if plain else rounded(values, kind, amax)
            yield (name if name.endswith(f".{end}") else f"{name}.{end}"), np.ascontiguousarray(values)


def make(name, kind, config, extra, quantization, names):
    torch.manual_seed(7)
    model = getattr(transformers, kind)(config).eval().float()
    with torch.no_grad():
        noisy = [value for value in model.parameters() if value.requires_grad]
        for value in noisy + [value for name, value in model.named_buffers() if name == "final_logits_bias"]:
            value.add_(torch.randn_like(value) * 0.1)
        if kind == "MarianMTModel":
            model.final_logits_bias[:, -1] = 0
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | extra))
        Converter.pad_last = kind == "MarianMTModel"
        Converter(folder).convert(str(OUT / name), quantization=quantization, force=True)
    weights = {source: value.detach().numpy().copy() for source, value in model.state_dict().items()}
    # Not written by the converters: the padding row of Marian's table, and Bart's first two positions.
    if kind == "MarianMTModel":
        weights["model.shared.weight"] = weights["model.shared.weight"][:-1]
        weights["final_logits_bias"] = weights["final_logits_bias"][:, :-1]
    if kind == "BartForConditionalGeneration":
        for side in ("encoder", "decoder"):
            weights[f"model.{side}.embed_positions.weight"] = weights[f"model.{side}.embed_positions.weight"][2:]
    if kind == "GPTNeoXForCausalLM":
        # The rows of each head are contiguous, its query rows first.
        for end in ("weight", "bias"):
            fused = weights[f"gpt_neox.layers.0.attention.query_key_value.{end}"]
            heads = fused.reshape(HEADS, 3, WIDTH // HEADS, *fused.shape[1:])
            for part, letter in enumerate("qkv"):
                weights[f"gpt_neox.layers.0.attn.{letter}_proj.{end}"] = heads[:, part].reshape(WIDTH, *fused.shape[1:])
    values = dict(expected(weights, names, quantization))
    save_file({n: np.ascontiguousarray(v) for n, v in values.items()}, OUT / f"{name}.safetensors")
    if not kind.endswith("CausalLM"):
        restore(model, kind, names, values)
        save_file(computed(model, kind, config), OUT / f"{name}.io.safetensors")


def restore(model, kind, names, values):
    """Loads the rounded weights into the source model, with the rows that the converters leave out."""
    state = model.state_dict()
    for name, value in values.items():
        stem, end = name.rsplit(".", 1)
        source = names.get(name) or f"{names[stem]}.{end}"
        value, whole = torch.from_numpy(value), state[source]
        if kind == "BartForConditionalGeneration" and "embed_positions" in source:
            whole[2:] = value
        elif kind == "MarianMTModel" and source == "model.shared.weight":
            whole[:-1], whole[-1] = value, 0
        elif source == "final_logits_bias":
            whole[0, : value.numel()] = value
        else:
            whole.copy_(value)


def computed(model, kind, config):
    """Inputs, and PyTorch's outputs."""
    ids = torch.randint(0, VOCABULARY - 1, (1, 7))
    if kind == "BertModel":
        given = dict(input_ids=ids, token_type_ids=torch.randint(0, 2, (1, 7)))
    else:
        start = getattr(config, "decoder_start_token_id", None) or 0
        written = torch.cat([torch.tensor([[start]]), torch.randint(0, VOCABULARY - 1, (1, 4))], 1)
        read = dict(input_features=torch.randn(1, 5, 12)) if kind.startswith("Whisper") else dict(input_ids=ids)
        given = read | dict(decoder_input_ids=written)
    with torch.no_grad():
        made = model(**given)
    output = made.last_hidden_state if kind == "BertModel" else made.logits
    output = output[:, :, : VOCABULARY - (kind == "MarianMTModel")]
    return {n: v.contiguous().numpy() for n, v in (given | {"output": output}).items()}


class Linear(model_spec.LayerSpec):
    def __init__(self, weight):
        self.weight, self.weight_scale = weight, model_spec.OPTIONAL


class Types(model_spec.ModelSpec):
    """A variable of each type, quantized as in the specification."""

    name, revision = property(lambda self: "TypesSpec"), property(lambda self: 9)

    def __init__(self):
        super().__init__()
        self.a = self.b = self.c = self.d = self.e = self.f = self.flag = self.count = self.size = self.text = None


def types():
    random = np.random.default_rng(3)
    weight = lambda: Linear(random.normal(size=(4, 6)).astype(np.float32))
    spec = Types()
    for name in "abcdef":
        setattr(spec, name, weight())
    spec.f = Linear(spec.a.weight.copy())
    spec.a.weight[2] = 0
    spec.f.weight[2] = 0
    spec.flag, spec.count = True, np.dtype("int32").type(-70000)
    spec.size, spec.text = np.dtype("float32").type(0.1), "</s>"
    spec.validate()
    spec._alias_variables()
    for name, kind in zip("abcde", ["int8", "int16", "float16", "bfloat16", "float32"]):
        getattr(spec, name)._quantize(kind)
    spec._serialize(str(OUT / "types.bin"))
    values = {}
    for name in "abcde":
        layer = getattr(spec, name)
        stored = layer.weight
        data = stored.tensor.float().numpy() if hasattr(stored, "tensor") else stored.numpy()
        data = data.astype(np.float32)
        if not isinstance(layer.weight_scale, str):
            scale = np.atleast_1d(layer.weight_scale.numpy())
            values[f"{name}/scale"] = scale
            data = data * (np.float32(1) / scale)[:, None]
        values[f"{name}/weight"] = data
    save_file({n: np.ascontiguousarray(v) for n, v in values.items()}, OUT / "types.safetensors")


OUT.mkdir(parents=True, exist_ok=True)
SEEDS.mkdir(parents=True, exist_ok=True)
for model in MODELS:
    make(*model)
types()
shutil.copy(OUT / "types.bin", SEEDS / "types.bin")
shutil.copy(OUT / "llama-int8/model.bin", SEEDS / "llama.bin")
shutil.copy(OUT / "t5-float32/shared_vocabulary.json", SEEDS / "vocabulary.json")
print("made with ctranslate2", ctranslate2.__version__, "and transformers", transformers.__version__)
