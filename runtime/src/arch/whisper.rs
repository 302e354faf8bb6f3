//! Whisper (arXiv:2212.04356): BART's layers on log-mel frames, after two convolutions.

use super::bart;
use super::blocks::{taken, whole};
use super::{ConfigReader, Family, ModelConfig, TensorRule, TensorTransform, Topology, tensor_map};
use crate::Result;
use crate::graph::{ActivationKind, Builder, ValueId};

pub(super) static FAMILY: Family = Family {
    name: "whisper",
    hugging_face: &["whisper"],
    gguf: &[],
    hugging_face_rules: &RULES,
    gguf_rules: &[],
    hyper: |config| side(config, "decoder"),
    form: Topology::Both {
        encoder: |config, _, mut b| {
            let h = side(config, "encoder")?;
            let x = sound(&h, &mut b);
            bart::encoder(config, &h, b, x)
        },
        decoder: |config, h, mut b| {
            let tokens = b.embed("token_embd.weight", h.vocabulary, h.width);
            let positions = b.embed_position("dec.position_embd.weight", h.context, h.width, 0);
            let x = b.add(tokens, positions);
            bart::decoder(config, h, b, x)
        },
    },
};

/// The tensor map of the parts before the layers, which are BART's.
const OWN: [TensorRule; 4] = [
    taken("enc.conv1", "model.encoder.conv1", TensorTransform::Neighbors(3)),
    taken("enc.conv2", "model.encoder.conv2", TensorTransform::Neighbors(3)),
    whole("token_embd", "model.decoder.embed_tokens"),
    whole("output", "proj_out"),
];

const RULES: [TensorRule; OWN.len() + bart::RULES.len()] = tensor_map::joined(&OWN, bart::RULES);

fn side(config: &ConfigReader, side: &str) -> Result<ModelConfig> {
    let mut hyper = bart::side(config, side)?;
    hyper.text = config.required(&["max_source_positions"])?;
    hyper.features = config.required(&["num_mel_bins"])?;
    Ok(hyper)
}

/// The convolutions: two of kernel size 3, the second with stride 2.
fn sound(h: &ModelConfig, b: &mut Builder<'_>) -> ValueId {
    let mut x = b.features(h.features);
    for (name, stride) in [("enc.conv1", 1), ("enc.conv2", 2)] {
        let near = b.im2col(x, &[-1, 0, 1], stride);
        x = b.linear(near, name, h.width);
        x = b.activate(ActivationKind::Gelu, x);
    }
    let positions = b.embed_position("enc.position_embd.weight", h.text, h.width, 0);
    b.add(x, positions)
}
