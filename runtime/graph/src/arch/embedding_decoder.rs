//! Embedding models made from decoders: they encode whole sequences and have no LM head.

use super::{ConfigReader, Family};
use crate::op::HeadRole;
use crate::pass::cut;
use crate::{AttentionMask, Graph, Op, OutputHead, Weight, WeightId};
use siskin_format::{Error, Result};

/// The key for bidirectional attention, which Transformers honors for few families.
const FLAG: &str = "use_bidirectional_attention";

/// Returns whether the decoder of `family` with this `config` is an embedding model.
pub(super) fn reads(family: &Family, config: &ConfigReader) -> Result<bool> {
    Ok(View::of(family, config)? != View::Before || config.get("sentence_transformers/pooling").is_some())
}

/// Which positions a query attends to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    /// Causal.
    Before,
    /// Bidirectional, for models without sliding windows.
    All,
    /// Bidirectional; a window w reaches w/2 to either side.
    Halves,
    /// Bidirectional; a window w reaches w/2 + 1 to either side.
    LongHalves,
    /// Bidirectional; a window w reaches w to either side.
    Wholes,
}

impl View {
    fn of(family: &Family, config: &ConfigReader) -> Result<Self> {
        let flagged = config.flag(&[FLAG])? == Some(true);
        if flagged && family.bidirectional_key != Some(FLAG) {
            let family = family.name;
            let message = format!(
                "Transformers ignores this key in {family}: set \"is_causal\": false for bidirectional \
                 attention, or remove the key"
            );
            return Err(Error::unsupported(format!("config.{FLAG}"), message));
        }
        Ok(match (config.flag(&["is_causal"])?, flagged) {
            (Some(false), true) => Self::LongHalves,
            (Some(false), false) => Self::Wholes,
            (_, true) => Self::Halves,
            _ if config.flag(&["attention.causal"])? == Some(false) => Self::All,
            _ => Self::Before,
        })
    }

    fn attention_mask(self, window: Option<usize>) -> Result<AttentionMask> {
        Ok(match (self, window) {
            (Self::Before, window) => AttentionMask::CausalEncoder(window),
            (_, None) => AttentionMask::Full,
            (Self::Halves, Some(window)) => AttentionMask::LocalWindow(window / 2),
            (Self::LongHalves, Some(window)) => AttentionMask::LocalWindow(window / 2 + 1),
            (Self::Wholes, Some(window)) => AttentionMask::LocalWindow(window),
            (Self::All, Some(_)) => {
                let message = "false, but layers have a sliding window, which llama.cpp only applies to \
                               earlier tokens; open the model's Hugging Face folder";
                return Err(Error::unsupported("config.attention.causal", message));
            }
        })
    }
}

/// Returns the graph up to the hidden states before the LM head, for whole sequences.
pub(super) fn of(family: &Family, config: &ConfigReader, graph: &Graph) -> Result<Graph> {
    if graph.states().next().is_some() {
        let message = format!(
            "pooling or bidirectional attention makes this an embedding model, but {} has recurrent \
             layers, which process tokens in order; remove both to generate text with it",
            family.name
        );
        return Err(Error::unsupported("config", message));
    }
    let mut read = Graph { head: OutputHead::Hidden, ..cut::part(graph, None, scored(graph)?) };
    let view = View::of(family, config)?;
    for node in &mut read.nodes {
        if let Op::Attention(attention) = &mut node.op
            && let AttentionMask::Causal(window) = attention.attention_mask
        {
            attention.attention_mask = view.attention_mask(window)?;
        }
    }
    Ok(with_needed_weights(read))
}

/// Returns the input of the LM head.
fn scored(graph: &Graph) -> Result<usize> {
    let mut value = graph.output;
    loop {
        let node = graph.nodes.iter().rev().find(|node| node.output == value);
        match node.map(|node| (node.op.head_role(), node.inputs.as_slice())) {
            Some((HeadRole::AfterLogits, &[input])) => value = input,
            Some((HeadRole::Logits, &[input])) => return Ok(input),
            _ => return Err(Error::unsupported("graph", "the logits must be the output of a linear layer")),
        }
    }
}

fn with_needed_weights(mut graph: Graph) -> Graph {
    let mut places: Vec<Option<WeightId>> = vec![None; graph.weights.len()];
    let mut needed: Vec<Weight> = Vec::new();
    for node in &mut graph.nodes {
        node.op.each_weight(&mut |weight| {
            *weight = *places[*weight].get_or_insert_with(|| {
                needed.push(graph.weights[*weight].clone());
                needed.len() - 1
            });
        });
    }
    Graph { weights: needed, ..graph }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use siskin_format::ErrorKind;

    fn read(family: &str, more: serde_json::Value) -> Result<Option<Graph>> {
        let mut config = json!({
            "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 10, "head_dim": 4,
            "sliding_window": 5, "sliding_window_pattern": 2, "final_logit_softcapping": 30.0,
        });
        let object = config.as_object_mut().unwrap();
        object.extend(more.as_object().unwrap().clone());
        let config = ConfigReader::new(object.clone());
        let (_, graphs) = Family::named(family).unwrap().build(&config, &|_| true)?;
        assert!(graphs.encoder.is_none() || graphs.decoder.is_none());
        Ok(graphs.encoder)
    }

    fn sights(family: &str, more: serde_json::Value) -> Vec<AttentionMask> {
        let graph = read(family, more).unwrap().unwrap();
        assert_eq!((graph.head, graph.output), (OutputHead::Hidden, graph.hidden));
        assert!(graph.weights.iter().any(|weight| weight.name == "output_norm.weight"));
        assert!(graph.weights.iter().all(|weight| weight.name != "output.weight"), "{:?}", graph.weights);
        graph.attentions().map(|attention| attention.attention_mask).collect()
    }

    #[test]
    fn a_decoder_with_pooling_reads_and_sees_what_its_configuration_says() {
        let cases = [
            (
                json!({"sentence_transformers": {"pooling": "last"}}),
                [AttentionMask::CausalEncoder(Some(5)), AttentionMask::CausalEncoder(None)],
            ),
            (
                json!({"use_bidirectional_attention": true}),
                [AttentionMask::LocalWindow(2), AttentionMask::Full],
            ),
            (
                json!({"use_bidirectional_attention": true, "attention.causal": false}),
                [AttentionMask::LocalWindow(2), AttentionMask::Full],
            ),
            (
                json!({"use_bidirectional_attention": true, "is_causal": false}),
                [AttentionMask::LocalWindow(3), AttentionMask::Full],
            ),
            (json!({"is_causal": false}), [AttentionMask::LocalWindow(5), AttentionMask::Full]),
            (
                json!({"attention.causal": false, "sliding_window": null}),
                [AttentionMask::Full, AttentionMask::Full],
            ),
        ];
        for (more, expected) in cases {
            assert_eq!(sights("gemma3", more.clone()), expected, "{more}");
        }
        assert_eq!(
            sights("gemma2", json!({"is_causal": false})),
            [AttentionMask::LocalWindow(5), AttentionMask::Full]
        );
    }

    #[test]
    fn what_would_make_other_vectors_is_rejected() {
        let cases = [
            ("gemma3", json!({"attention.causal": false}), "config.attention.causal"),
            ("llama", json!({"use_bidirectional_attention": true}), "config.use_bidirectional_attention"),
            ("gemma2", json!({"use_bidirectional_attention": true}), "config.use_bidirectional_attention"),
        ];
        for (family, more, place) in cases {
            let error = read(family, more).unwrap_err();
            assert_eq!((error.kind(), error.location()), (ErrorKind::Unsupported, place), "{error}");
        }
        assert!(read("gemma2", json!({"use_bidirectional_attention": false})).unwrap().is_none());
    }
}
