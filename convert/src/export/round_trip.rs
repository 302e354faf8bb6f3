//! Round-trip check: compares the graph that the written hyperparameters describe to the model's own.

use siskin_format::{Error, Result};
use siskin_graph::arch::{Graphs, ModelConfig};
use siskin_graph::{AttentionMask, Graph, Op, RopeTable};

/// Maximum relative difference of frequencies that were rounded to f32.
const CLOSE: f32 = 1e-5;

/// Differences that are accepted because a note reports them.
#[derive(Clone, Copy, Default)]
pub(super) struct AcceptedDifferences {
    /// Sliding windows of layers.
    pub(super) windows: bool,
    /// The attention scale.
    pub(super) scales: bool,
    /// RoPE frequencies that depend on the sequence length.
    pub(super) growth: bool,
}

/// Refuses to write a model whose written hyperparameters describe a different graph. Differences in `accepted` are
/// accepted.
pub(super) fn check(
    own: Graphs,
    read: Result<(ModelConfig, Graphs)>,
    format: &str,
    accepted: AcceptedDifferences,
) -> Result<()> {
    let rejected = |message: String| Error::unsupported(format, message);
    let (_, read) =
        read.map_err(|error| rejected(format!("the exported configuration cannot be read back: {error}")))?;
    match difference(own, read, accepted) {
        None => Ok(()),
        Some((own, read)) => Err(rejected(format!(
            "the format has no key for a part of the model: {own} would become {read}; choose another format"
        ))),
    }
}

/// Returns the first difference, as both graphs have it.
fn difference(own: Graphs, read: Graphs, accepted: AcceptedDifferences) -> Option<(String, String)> {
    let texts = |graph: &Graph| -> Vec<String> {
        let nodes = graph.nodes.iter().map(|node| match &node.op {
            Op::Attention(attention) => {
                let mut attention = attention.clone();
                if accepted.windows
                    && let AttentionMask::Causal(window) | AttentionMask::CausalEncoder(window) =
                        &mut attention.attention_mask
                {
                    *window = None;
                }
                if accepted.scales {
                    attention.scale = 1.0;
                }
                format!("{attention:?}")
            }
            op => format!("{op:?}"),
        });
        nodes.collect()
    };
    for (own, read) in [(own.encoder, read.encoder), (own.decoder, read.decoder)] {
        let (Some(own), Some(read)) = (&own, &read) else {
            let side = |graph: &Option<Graph>| {
                let kind = graph.as_ref().map(|graph| graph.head);
                kind.map_or_else(|| "nothing".to_owned(), |head| format!("a graph that gives {head:?}"))
            };
            match own.is_some() == read.is_some() {
                true => continue,
                false => return Some((side(&own), side(&read))),
            }
        };
        let (own_texts, read_texts) = (texts(own), texts(read));
        let longest = own_texts.len().max(read_texts.len());
        let at = |texts: &[String], index: usize| {
            texts.get(index).cloned().unwrap_or_else(|| "nothing".to_owned())
        };
        let pairs = (0..longest).map(|index| (at(&own_texts, index), at(&read_texts, index)));
        if let Some(pair) = pairs.into_iter().find(|(own, read)| own != read) {
            return Some(pair);
        }
        if let Some((own, read)) =
            own.ropes.iter().zip(&read.ropes).find(|(own, read)| !alike(own, read, accepted))
        {
            let text = |rope: &RopeTable| {
                format!(
                    "rotary positions with factor {} and frequencies {:?} …",
                    rope.magnitude,
                    &rope.frequencies[..rope.frequencies.len().min(4)]
                )
            };
            return Some((text(own), text(read)));
        }
    }
    None
}

fn alike(own: &RopeTable, read: &RopeTable, accepted: AcceptedDifferences) -> bool {
    let close = |own: f32, read: f32| (own - read).abs() <= CLOSE * own.abs().max(read.abs());
    own.frequencies.len() == read.frequencies.len()
        && (accepted.growth || own.scaling.is_some() == read.scaling.is_some())
        && close(own.magnitude, read.magnitude)
        && own.frequencies.iter().zip(&read.frequencies).all(|(&own, &read)| close(own, read))
}
