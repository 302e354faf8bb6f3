"""Writes the `defaults` of every `ModelType` of a family: Transformers' values of keys missing in a configuration.

    python tests/golden-scripts/make_defaults.py [MODEL_TYPE]…

Only keys that a family asks for, whose default does not follow from other keys, are kept. Without arguments all types
are written. `rustfmt` must be installed.
"""

import re
import subprocess
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "runtime" / "src" / "arch"
# Parts of a family's file that write keys and do not read them.
WRITTEN = re.compile(
    r"^pub\(super\) static FAMILY: .*?^    hyper"
    r"|^(?:pub\(super\) )?const \w*KEYS\b.*?;$"
    r"|^(?:pub\(super\) )?fn (?:\w+_keys|ctranslate2_\w+)\(.*?^\}", re.MULTILINE | re.DOTALL)
TYPE = re.compile(r'ModelType \{\s*name: "([^"]+)",\s*class: [^,]+,\s*defaults: &\[')

# Of a text model within a larger one, configurations leave out sizes too; others say them.
NESTED = {"gemma3", "gemma3_text", "qwen3_5", "qwen3_5_text"}
# Sizes of their own, which a probe changes.
SIZES = {
    "hidden_size", "num_attention_heads", "num_hidden_layers", "d_model", "n_embd", "n_head", "n_layer", "dim",
    "n_heads", "n_layers", "num_heads", "num_layers",
}
WIDTHS = {
    "d_ff", "d_kv", "embedding_size", "hidden_dim", "intermediate_size", "max_position_embeddings", "max_seq_len",
    "max_source_positions", "max_target_positions", "moe_intermediate_size", "n_positions", "num_experts",
    "num_local_experts", "num_mel_bins", "shared_expert_intermediate_size", "vocab_size",
}
# What says which numbers there are rather than what they are: families know it from the tensors, or ask otherwise.
APART = {
    "attention_type", "bos_token_id", "classifier_pooling", "decoder_start_token_id", "dense_act_fn", "eos_token_id",
    "is_decoder", "model_type", "norm_type", "normalization_type", "pad_token_id", "position_embedding_type",
    "scale_decoder_outputs", "shared_intermediate_size", "tie_word_embeddings", "true_hidden_size",
    "use_bidirectional_attention",
}
PROBES = [
    {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 3},
    {"num_attention_heads": 2},
    {"hidden_size": 64},
]


def values(kind, arguments):
    try:
        config = CONFIG_MAPPING[kind](**arguments)
    except Exception:  # A size that does not fit the others.
        return None
    return getattr(config, "text_config", config).to_dict()


def defaults(kind, asked):
    own = values(kind, {})
    probes = [probe for probe in (values(kind, arguments) for arguments in PROBES) if probe]
    kept = {}
    for key, value in own.items():
        if key not in asked or key in APART or not isinstance(value, (bool, int, float, str)):
            continue
        if key in SIZES | WIDTHS and kind not in NESTED:
            continue
        if key in SIZES or all(probe.get(key) == value for probe in probes):
            kept[key] = value
    rope = own.get("rope_parameters") or {}
    if set(rope) - {"rope_theta", "rope_type", "partial_rotary_factor"}:
        # Kinds of layers have bases that families know.
        if "full_attention" not in rope:
            kept["rope_parameters"] = rope
    else:
        usual = {"rope_theta": 10000.0, "partial_rotary_factor": 1.0}
        kept |= {key: rope[key] for key in usual if rope.get(key, usual[key]) != usual[key]}
    return kept


def rust(value):
    """A value as a `DefaultValue`."""
    if isinstance(value, bool):
        return f"Flag({str(value).lower()})"
    if isinstance(value, int):
        return f"Count({value if value < 10000 else format(value, '_')})"
    if isinstance(value, float):
        text = re.sub(r"e-0?", "e-", repr(value))
        return f"Number({text if value < 10000 else format(value, '_')})"
    if isinstance(value, str):
        return f'Word("{value}")'
    return f"Object(&[{entries(value)}])"


def entries(values):
    return ", ".join(f'("{key}", {rust(value)})' for key, value in sorted(values.items()))


def end_of_list(text, start):
    """The position after the bracket that closes the one before `start`."""
    depth = 1
    while depth:
        depth += {"[": 1, "]": -1}.get(text[start], 0)
        start += 1
    return start


def main():
    paths = sorted(FAMILIES.glob("*.rs"))
    code = "".join(WRITTEN.sub("", path.read_text()) for path in paths)
    asked = set(re.findall(r'"([a-zA-Z_][a-zA-Z0-9_]*)"', code))
    wanted = sys.argv[1:]
    for path in paths:
        text = path.read_text()
        for found in reversed(list(TYPE.finditer(text))):
            kind = found.group(1)
            if kind not in CONFIG_MAPPING or wanted and kind not in wanted:
                continue
            end = end_of_list(text, found.end())
            text = f"{text[:found.end()]}{entries(defaults(kind, asked))}]{text[end:]}"
        path.write_text(text)
        # The variants in use; one is imported without braces.
        variants = sorted(set(re.findall(r'\("[a-z_]+", (Count|Flag|Number|Object|Word)\(', text, re.IGNORECASE)))
        names = variants[0] if len(variants) == 1 else f"{{{', '.join(variants)}}}"
        if variants:
            path.write_text(re.sub(r"(use super::descriptor::DefaultValue::)[^;]*;", rf"\g<1>{names};", text))
    subprocess.run(["rustfmt", "--edition", "2024", "--config-path", ROOT, *paths], check=True)


if __name__ == "__main__":
    main()
