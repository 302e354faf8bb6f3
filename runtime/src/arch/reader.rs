//! Decoders that were made into models of vectors: they read whole texts, and their scores are not asked for.

use super::Config;
use crate::graph::pass::cut;
use crate::graph::{Graph, Head, Op, Sight, Weight, WeightId};
use crate::{Error, Result};

/// Whether the decoder that `config` describes reads whole texts.
pub(super) fn reads(config: &Config) -> Result<bool> {
    Ok(config.get("sentence_transformers/pooling").is_some() || View::of(config)? != View::Before)
}

/// Which tokens of a text each token sees.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    /// Those before it.
    Before,
    /// Those on either side, of a window the half.
    Halves,
    /// Those on either side, a window to each.
    Wholes,
}

impl View {
    fn of(config: &Config) -> Result<Self> {
        let is_both = config.flag(&["use_bidirectional_attention"])? == Some(true);
        Ok(match config.flag(&["is_causal"])? {
            Some(false) => Self::Wholes,
            _ if is_both || config.flag(&["attention.causal"])? == Some(false) => Self::Halves,
            _ => Self::Before,
        })
    }

    fn sight(self, window: Option<usize>) -> Sight {
        match (self, window) {
            (Self::Before, window) => Sight::Earlier(window),
            (_, None) => Sight::Whole,
            (Self::Halves, Some(window)) => Sight::Around(window / 2),
            (Self::Wholes, Some(window)) => Sight::Around(window),
        }
    }
}

/// What `graph`, which `config` describes, computes before its scores, for whole texts.
pub(super) fn of(config: &Config, graph: &Graph) -> Result<Graph> {
    if graph.states().next().is_some() {
        let message = "of layers with a state, which cannot be read at once";
        return Err(Error::unsupported("config.sentence_transformers.pooling", message));
    }
    let mut read = Graph { head: Head::Hidden, ..cut::part(graph, None, scored(graph)?) };
    let view = View::of(config)?;
    for node in &mut read.nodes {
        if let Op::Attention(attention) = &mut node.op
            && let Sight::Before(window) = attention.sight
        {
            attention.sight = view.sight(window);
        }
    }
    Ok(with_needed_weights(read))
}

/// The hidden states that the scores of tokens are made of.
fn scored(graph: &Graph) -> Result<usize> {
    let mut value = graph.output;
    loop {
        let node = graph.nodes.iter().rev().find(|node| node.output == value);
        match node.map(|node| (&node.op, node.inputs.as_slice())) {
            Some((Op::Softcap(_) | Op::Scale(_), &[input])) => value = input,
            Some((Op::Linear { .. }, &[input])) => return Ok(input),
            _ => return Err(Error::unsupported("graph", "scores that no product gives")),
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
    use crate::arch::Family;
    use serde_json::json;

    fn sights(more: serde_json::Value) -> Vec<Sight> {
        let mut config = json!({
            "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 10, "head_dim": 4,
            "sliding_window": 5, "sliding_window_pattern": 2, "final_logit_softcapping": 30.0,
        });
        let object = config.as_object_mut().unwrap();
        object.extend(more.as_object().unwrap().clone());
        let config = Config::new(object.clone());
        let (_, graphs) = Family::named("gemma3").unwrap().build(&config, &|_| true).unwrap();
        assert!(graphs.decoder.is_none());
        let graph = graphs.encoder.unwrap();
        assert_eq!((graph.head, graph.output), (Head::Hidden, graph.hidden));
        assert!(graph.weights.iter().any(|weight| weight.name == "output_norm.weight"));
        assert!(graph.weights.iter().all(|weight| weight.name != "output.weight"), "{:?}", graph.weights);
        graph.attentions().map(|attention| attention.sight).collect()
    }

    #[test]
    fn a_decoder_with_pooling_reads_and_sees_what_its_configuration_says() {
        let pooled = json!({"sentence_transformers": {"pooling": "last"}});
        assert_eq!(sights(pooled), [Sight::Earlier(Some(5)), Sight::Earlier(None)]);
        for both in [json!({"use_bidirectional_attention": true}), json!({"attention.causal": false})] {
            assert_eq!(sights(both), [Sight::Around(2), Sight::Whole]);
        }
        assert_eq!(sights(json!({"is_causal": false})), [Sight::Around(5), Sight::Whole]);
    }
}
