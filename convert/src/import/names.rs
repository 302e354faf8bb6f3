//! Maps a tensor's name in a `.siskin` file to its name in a source.

use siskin_graph::arch::{DESCRIPTORS, TensorRule, TensorTransform};

/// Returns the source's name and the transform that `rules` define for `name`, or `None` if no rule matches.
pub(crate) fn apply(rules: &[&[TensorRule]], name: &str) -> Option<(String, TensorTransform)> {
    // A rule that matches with the suffix gives the full name of the source.
    if let Some(whole) = applied(rules, name) {
        return Some(whole);
    }
    let (stem, suffix) = match name.rsplit_once('.') {
        Some((stem, suffix @ ("weight" | "bias"))) => (stem, suffix),
        _ => (name, ""),
    };
    let (source, take) = applied(rules, stem)?;
    Some((if suffix.is_empty() { source } else { format!("{source}.{suffix}") }, take))
}

/// Does the same for a name that rules spell in full.
fn applied(rules: &[&[TensorRule]], name: &str) -> Option<(String, TensorTransform)> {
    rules.iter().copied().flatten().find_map(|rule| {
        let numbers = numbers(rule.name(), name)?;
        let mut source = rule.source().to_owned();
        numbers.iter().for_each(|number| source = source.replacen("{}", number, 1));
        let take = match rule.take {
            TensorTransform::Stacked { of, part } => {
                let number: u16 = numbers.last()?.parse().ok()?;
                TensorTransform::Chunk(number.checked_mul(of)?.checked_add(part)?)
            }
            TensorTransform::StackedAcross { of, part } => {
                TensorTransform::Across { chunk: numbers.last()?.parse().ok()?, of, part }
            }
            take => take,
        };
        Some((source, take))
    })
}

/// Returns the transform of the source's tensor `source`, or `None` if no rule matches.
pub(super) fn take_of(rules: &[&[TensorRule]], source: &str) -> Option<TensorTransform> {
    let stem = source.strip_suffix(".weight").or_else(|| source.strip_suffix(".bias"));
    let is = |rule: &&TensorRule| {
        let pattern = bare(rule.source());
        [Some(source), stem].into_iter().flatten().any(|name| numbers(pattern, bare(name)).is_some())
    };
    rules.iter().copied().flatten().find(is).map(|rule| rule.take)
}

/// Returns the numbers in `text` at each `{}` of `pattern`, or `None` if `text` does not match.
pub(super) fn numbers<'a>(pattern: &str, text: &'a str) -> Option<Vec<&'a str>> {
    let mut numbers = Vec::new();
    let mut parts = pattern.split("{}");
    let mut rest = text.strip_prefix(parts.next()?)?;
    for part in parts {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        numbers.push(Some(number).filter(|number| !number.is_empty())?);
        rest = after.strip_prefix(part)?;
    }
    rest.is_empty().then_some(numbers)
}

/// Returns the name of a layer's tensor without the layer number, or `None` if it belongs to no layer.
pub(super) fn of_any_layer(name: &str) -> Option<String> {
    let (before, rest) = name.split_once("blk.")?;
    let (_, part) = rest.split_once('.')?;
    Some(format!("{before}blk.{part}"))
}

/// Returns the current form of a Hugging Face name: norms of the first BERT models are named `gamma` and `beta`.
pub(super) fn current(name: String) -> String {
    let renamed = |old: &str, new: &str| {
        let stem = name.strip_suffix(old)?;
        stem.ends_with("LayerNorm").then(|| format!("{stem}{new}"))
    };
    renamed(".gamma", ".weight").or_else(|| renamed(".beta", ".bias")).unwrap_or(name)
}

/// Modules of classes that contain text models of several families.
const WRAPPERS: [&str; 2] = ["model", "language_model"];

/// Strips the prefixes of wrapper classes from a Hugging Face name.
pub(super) fn bare(name: &str) -> &str {
    let mut bare = name;
    // A prefix is a whole module: what comes before the first dot.
    while let Some((module, rest)) = bare.split_once('.') {
        let is_prefix = || DESCRIPTORS.iter().any(|descriptor| descriptor.hugging_face.prefix == module);
        if module.is_empty() || !WRAPPERS.contains(&module) && !is_prefix() {
            break;
        }
        bare = rest;
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &[&[TensorRule]] = &[&[
        TensorRule::new("token_embd = transformer.wte", TensorTransform::Whole),
        TensorRule::new("blk.{}.attn_q = h.{}.c_attn", TensorTransform::Transposed),
    ]];

    #[test]
    fn layers_and_suffixes_are_kept() {
        let apply = |name| apply(RULES, name);
        let across = TensorTransform::StackedAcross { of: 2, part: 1 };
        let rules = [TensorRule::new("blk.{}.up.{}.bias = h.{}.up_bias", across)];
        let taken = TensorTransform::Across { chunk: 5, of: 2, part: 1 };
        assert_eq!(super::apply(&[&rules], "blk.3.up.5.bias"), Some(("h.3.up_bias".into(), taken)));
        assert_eq!(super::apply(&[&rules], "blk.3.up.5.weight"), None);
        assert_eq!(
            apply("token_embd.weight"),
            Some(("transformer.wte.weight".into(), TensorTransform::Whole))
        );
        assert_eq!(
            apply("blk.17.attn_q.bias"),
            Some(("h.17.c_attn.bias".into(), TensorTransform::Transposed))
        );
        for other in
            ["blk.17.attn_q_norm.weight", "blk..attn_q.weight", "blk.x.attn_q.weight", "blk.1.attn_q.scale"]
        {
            assert_eq!(apply(other), None, "{other}");
        }
    }

    #[test]
    fn norms_have_the_names_of_today() {
        let today = |name: &str| current(name.to_owned());
        assert_eq!(today("bert.embeddings.LayerNorm.gamma"), "bert.embeddings.LayerNorm.weight");
        assert_eq!(
            today("cls.predictions.transform.LayerNorm.beta"),
            "cls.predictions.transform.LayerNorm.bias"
        );
        assert_eq!(today("layers.0.gamma"), "layers.0.gamma");
    }

    #[test]
    fn wrappers_fall_off() {
        assert_eq!(bare("language_model.model.layers.0.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight");
        assert_eq!(bare("lm_head.weight"), "lm_head.weight");
    }
}
