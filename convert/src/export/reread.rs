//! What is written of the computation, beside what the model computes.

use siskin::arch::{Graphs, Hyper};
use siskin::graph::{Graph, Op, Rope, Sight};
use siskin::{Error, Result};

/// How far apart frequencies are that went through 32 bits.
const CLOSE: f32 = 1e-5;

/// Refuses to write a model whose hyper-parameters are read again as those of another one. `notes` tell of what is known
/// to differ.
pub(super) fn check(
    own: Graphs,
    read: Result<(Hyper, Graphs)>,
    format: &str,
    notes: &[String],
) -> Result<()> {
    let refused = |message: String| Error::unsupported(format, message);
    let (_, read) =
        read.map_err(|error| refused(format!("what is written could not be read again: {error}")))?;
    match difference(own, read, notes) {
        None => Ok(()),
        Some((own, read)) => Err(refused(format!(
            "the format has no key for a part of what the model computes: {own} would become {read}; take another one"
        ))),
    }
}

/// The first thing that differs, as both have it. What `notes` tell of already is let pass.
fn difference(own: Graphs, read: Graphs, notes: &[String]) -> Option<(String, String)> {
    let told = |word: &str| notes.iter().any(|note| note.contains(word));
    let (windows, scales) = (told("window"), told("scale of attention"));
    let texts = |graph: &Graph| -> Vec<String> {
        let nodes = graph.nodes.iter().map(|node| match &node.op {
            Op::Attention(attention) => {
                let mut attention = attention.clone();
                if windows && let Sight::Before(window) | Sight::Earlier(window) = &mut attention.sight {
                    *window = None;
                }
                if scales {
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
            match own.is_some() == read.is_some() {
                true => continue,
                false => {
                    return Some((
                        "a model that writes".to_owned(),
                        "one that reads, or the reverse".to_owned(),
                    ));
                }
            }
        };
        if own.nodes.len() != read.nodes.len() {
            let count = |graph: &Graph| format!("{} operations", graph.nodes.len());
            return Some((count(own), count(read)));
        }
        if let Some(pair) = texts(own).into_iter().zip(texts(read)).find(|(own, read)| own != read) {
            return Some(pair);
        }
        if let Some((own, read)) = own.ropes.iter().zip(&read.ropes).find(|(own, read)| !alike(own, read)) {
            let text = |rope: &Rope| {
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

fn alike(own: &Rope, read: &Rope) -> bool {
    let close = |own: f32, read: f32| (own - read).abs() <= CLOSE * own.abs().max(read.abs());
    own.frequencies.len() == read.frequencies.len()
        && own.stretch.is_some() == read.stretch.is_some()
        && close(own.magnitude, read.magnitude)
        && own.frequencies.iter().zip(&read.frequencies).all(|(&own, &read)| close(own, read))
}
