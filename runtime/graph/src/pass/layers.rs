//! Finds the layers of a graph, and skips some of them.
//!
//! Between two layers exactly one value is live: the residual stream that the next layer reads. A layer starts at the
//! last such point before its attention.

use std::ops::Range;

use crate::{AttentionMask, Graph, Op, ValueId};
use siskin_format::{Error, Result};

/// A set of layers, by index from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerSet([u64; 4]);

impl LayerSet {
    /// The empty set.
    pub const NONE: Self = Self([0; 4]);

    /// Creates a set of these layers; indices must be below 256.
    pub fn of(numbers: &[usize]) -> Result<Self> {
        let mut set = Self::NONE;
        for &number in numbers {
            let word = set.0.get_mut(number / 64);
            *word.ok_or_else(|| Error::argument("layers", format!("{number}; layers are below 256")))? |=
                1 << (number % 64);
        }
        Ok(set)
    }

    /// Returns the indices, in order.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..256).filter(move |number| self.0[number / 64] >> (number % 64) & 1 == 1)
    }
}

/// A layer: its input, and the only one of its values that other layers read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its nodes, as indices into the analyzed graph.
    nodes: Range<usize>,
    /// The input value.
    pub input: ValueId,
    /// The output value.
    pub output: ValueId,
}

/// Returns the layers of a graph, in order. Empty if they cannot be separated, such as in a graph with cross-attention.
pub fn layers(graph: &Graph) -> Vec<Layer> {
    if graph.attentions().any(|attention| attention.attention_mask == AttentionMask::CrossAttention) {
        return Vec::new();
    }
    let alone = alone(graph);
    let attends = |&node: &usize| matches!(graph.nodes[node].op, Op::Attention(_));
    let mut starts: Vec<usize> = (0..graph.nodes.len())
        .filter(attends)
        .filter_map(|attention| (0..=attention).rev().find(|&place| alone[place].is_some()))
        .collect();
    starts.dedup();
    let Some(&last) = starts.last() else { return Vec::new() };
    // The last layer must have the structure of one before it.
    let like = |pair: &[usize]| {
        let end = last + (pair[1] - pair[0]);
        let same = |(a, b): (usize, usize)| {
            let [a, b] =
                [a, b].map(|node| graph.nodes.get(node).map(|node| std::mem::discriminant(&node.op)));
            a == b
        };
        (end < alone.len() && alone[end].is_some() && (pair[0]..pair[1]).zip(last..end).all(same))
            .then_some(end)
    };
    let Some(end) = starts.windows(2).filter_map(like).max() else { return Vec::new() };
    let ends = starts.iter().skip(1).copied().chain([end]);
    let layer = |(start, end): (&usize, usize)| {
        Some(Layer { nodes: *start..end, input: alone[*start]?, output: alone[end]? })
    };
    starts.iter().zip(ends).filter_map(layer).collect()
}

/// Returns for each point between nodes the value that is live there, if it is the only one.
fn alone(graph: &Graph) -> Vec<Option<ValueId>> {
    let count = graph.nodes.len();
    let mut last = vec![None; graph.values.len()];
    for (place, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&input| last[input] = Some(place));
    }
    last[graph.output] = Some(count);
    // An unused head does not constrain anything else.
    let mut crossing: Vec<(usize, ValueId)> = vec![(0, 0); count + 1];
    for (place, node) in graph.nodes.iter().enumerate() {
        let Some(end) = last[node.output] else { continue };
        for crossed in &mut crossing[place + 1..=end] {
            *crossed = (crossed.0 + 1, node.output);
        }
    }
    crossing.into_iter().map(|(count, value)| (count == 1).then_some(value)).collect()
}

/// Returns the graph without some layers: the input of each becomes its output.
pub fn without(graph: &Graph, skipped: LayerSet) -> Result<Graph> {
    let body = super::prune(graph);
    let layers = layers(&body);
    let mut instead: Vec<ValueId> = (0..graph.values.len()).collect();
    let mut dropped = vec![false; graph.values.len()];
    if layers.is_empty() {
        return Err(Error::unsupported("skip_layers", "the layers of this model cannot be identified"));
    }
    if skipped.numbers().count() >= layers.len() {
        return Err(Error::argument(
            "skip_layers",
            format!("all {} layers would be skipped; keep at least one", layers.len()),
        ));
    }
    for number in skipped.numbers() {
        let layer = layers.get(number).ok_or_else(|| {
            Error::argument(
                "skip_layers",
                format!("layer {number} is out of range; the model has layers 0 to {}", layers.len() - 1),
            )
        })?;
        instead[layer.output] = layer.input;
        body.nodes[layer.nodes.clone()].iter().for_each(|node| dropped[node.output] = true);
    }
    let resolve = |mut value: ValueId| {
        // A layer's input has a smaller id than its output.
        while instead[value] != value {
            value = instead[value];
        }
        value
    };
    let exits = graph.exits.iter().filter(|exit| !dropped[exit.hidden]).copied();
    let mut nodes = graph.nodes.clone();
    nodes.retain(|node| !dropped[node.output]);
    nodes.iter_mut().for_each(|node| node.inputs.iter_mut().for_each(|input| *input = resolve(*input)));
    Ok(Graph {
        nodes,
        exits: exits.collect(),
        output: resolve(graph.output),
        hidden: resolve(graph.hidden),
        ..graph.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attention, Builder, NormKind};

    fn attention(layer: usize) -> Attention {
        Attention { layer, ..Attention::causal(1, 8) }
    }

    /// Pre-norm layers: a norm before attention and one before the feed-forward block.
    fn graph(layers: usize) -> Graph {
        let mut b = Builder::new(&|_| false);
        let mut x = b.embed("t", 10, 8);
        for layer in 0..layers {
            let normed = b.norm_of(NormKind::Rms, x, &format!("a{layer}"), 8, 0.1);
            let [q, k, v] = ["q", "k", "v"].map(|name| b.linear(normed, &format!("{name}{layer}"), 8));
            let attended = b.attention(q, k, v, attention(layer));
            x = b.add(x, attended);
            let normed = b.norm_of(NormKind::Rms, x, &format!("f{layer}"), 8, 0.1);
            let fed = b.linear(normed, &format!("u{layer}"), 8);
            x = b.add(x, fed);
        }
        let x = b.select_outputs(x);
        let x = b.norm_of(NormKind::Rms, x, "n", 8, 0.1);
        let x = b.linear(x, "o", 10);
        b.finish(x)
    }

    #[test]
    fn layers_are_found_and_left_out() {
        let graph = graph(4);
        let found = layers(&graph);
        assert_eq!(found.len(), 4);
        assert_eq!(found.iter().map(|layer| layer.nodes.len()).collect::<Vec<_>>(), [9; 4]);
        assert!(found.windows(2).all(|pair| pair[0].output == pair[1].input));
        let set = |numbers: &[usize]| LayerSet::of(numbers).unwrap();
        let rest = without(&graph, set(&[1, 2])).unwrap();
        let kept: Vec<usize> = rest.attentions().map(|attention| attention.layer).collect();
        assert_eq!(kept, [0, 3]);
        let last = &rest.nodes[found[0].nodes.end];
        assert_eq!(last.inputs, [found[0].output], "the last layer reads what the first one gave");
        let last = without(&graph, set(&[0, 2, 1])).unwrap();
        assert_eq!(last.nodes.len(), 13);
        assert_eq!(last.nodes[1].inputs, [found[0].input]);
        assert!(without(&graph, set(&[0, 1, 2, 3])).is_err());
        assert!(without(&graph, set(&[4])).is_err() && LayerSet::of(&[256]).is_err());
        assert_eq!(set(&[255, 3]).numbers().collect::<Vec<_>>(), [3, 255]);
        assert!(layers(&self::graph(1)).is_empty(), "one layer is like no other");
    }
}
