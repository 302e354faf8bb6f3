//! Attention as ONNX nodes: scores, position biases, attention masks and the weighted sum of values.

use super::lower::{GraphLowering, OnnxLowering, OnnxValue, unwritten};
use super::proto::{AttributeValue, Element};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::Node;
use siskin_graph::op::{Attention, AttentionMask, RelativePositionBias, StoreCrossKv};

/// Upper bound of positions: larger distances are clamped to it.
const MAX_DISTANCE: usize = 1 << 15;

impl OnnxLowering for Attention {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let inputs = (0..node.inputs.len()).map(|index| lowering.input(node, index));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        lowering.attention(self, &inputs).map(OnnxValue::Plain)
    }
}

impl OnnxLowering for StoreCrossKv {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let (keys, values) = (lowering.input(node, 0)?, lowering.input(node, 1)?);
        lowering.memory.insert(self.attention.layer, (keys.clone(), values));
        Ok(OnnxValue::Plain(keys))
    }
}

impl GraphLowering<'_, '_> {
    /// Writes attention. `inputs` are those of the operation: queries, keys, values, and the output of rows without
    /// global attention.
    fn attention(&mut self, attention: &Attention, inputs: &[String]) -> Result<String> {
        let (keys, values) = match (attention.attention_mask, inputs) {
            (AttentionMask::CrossAttention, _) => {
                self.memory.get(&attention.layer).cloned().ok_or_else(|| {
                    Error::new(
                        ErrorKind::Missing,
                        "graph",
                        format!("no key/value output was recorded for layer {}", attention.layer),
                    )
                })?
            }
            (_, [_, keys, values, ..]) => (keys.clone(), values.clone()),
            _ => return Err(Error::unsupported("graph", "attention without keys and values")),
        };
        if attention.sinks.is_some() {
            return Err(unwritten("learned attention sinks"));
        }
        let Attention { heads, kv_heads, head_size, .. } = *attention;
        let queries = self.heads(&inputs[0], head_size);
        let keys = self.shared(&keys, attention, kv_heads);
        let values = self.shared(&values, attention, kv_heads);
        let keys = self.nodes.transpose(&keys, &[0, 1, 3, 2]);
        // The scale is applied to the smaller tensor.
        let queries = self.nodes.times(&queries, attention.scale);
        let mut scores = self.nodes.add("MatMul", &[&queries, &keys]);
        if let Some(cap) = attention.softcap {
            scores = self.softcap(&scores, cap);
        }
        if !attention.alibi.is_empty() {
            let distances = self.distances();
            let distances = self.nodes.cast(&distances, Element::Float);
            let slopes = self.nodes.floats(&[1, heads, 1, 1], &attention.alibi);
            let added = self.nodes.add("Mul", &[&distances, &slopes]);
            scores = self.nodes.add("Add", &[&scores, &added]);
        }
        if let Some(bias) = attention.bias {
            let added = self.bias(&bias, heads)?;
            scores = self.nodes.add("Add", &[&scores, &added]);
        }
        if let Some(seen) = self.seen(attention.attention_mask)? {
            let least = self.nodes.float(f32::MIN);
            scores = self.nodes.add("Where", &[&seen, &scores, &least]);
        }
        let shares = self.nodes.with("Softmax", &[&scores], &[AttributeValue::Int("axis", -1)]);
        let sums = self.nodes.add("MatMul", &[&shares, &values]);
        let sums = self.nodes.transpose(&sums, &[0, 2, 1, 3]);
        let sums = self.nodes.reshape(&sums, &[0, 0, (heads * head_size) as i64]);
        match (attention.attention_mask, inputs) {
            (AttentionMask::LongformerGlobal, [_, _, _, base]) => {
                let marks = self.marks()?;
                let marks = self.nodes.cast(&marks, Element::Bool);
                let marks = self.nodes.unsqueeze(&marks, &[2]);
                Ok(self.nodes.add("Where", &[&marks, &sums, base]))
            }
            _ => Ok(sums),
        }
    }

    /// Splits `x` into heads: batch × heads × rows × head size.
    fn heads(&mut self, x: &str, head_size: usize) -> String {
        let heads = self.nodes.reshape(x, &[0, 0, -1, head_size as i64]);
        self.nodes.transpose(&heads, &[0, 2, 1, 3])
    }

    /// Splits `x` into KV heads and repeats each for the query heads that share it (GQA).
    fn shared(&mut self, x: &str, attention: &Attention, kv_heads: usize) -> String {
        let heads = self.heads(x, attention.head_size);
        let times = attention.heads / kv_heads.max(1);
        if times == 1 {
            return heads;
        }
        let apart = self.nodes.unsqueeze(&heads, &[2]);
        let copies = self.nodes.ints(&[1, 1, times as i64, 1, 1]);
        let copies = self.nodes.add("Expand", &[&apart, &copies]);
        // A size of −1 is inferred: the rows.
        self.nodes.reshape(&copies, &[0, attention.heads as i64, -1, attention.head_size as i64])
    }

    /// Returns the position bias of the scores: batch × heads × queries × keys.
    fn bias(&mut self, bias: &RelativePositionBias, heads: usize) -> Result<String> {
        let word = format!("bias {bias:?}");
        if let Some(value) = self.cached_values.get(&word) {
            return Ok(value.clone());
        }
        let reach = bias.max_distance.max(bias.buckets).min(MAX_DISTANCE) as i64;
        let steps: Vec<i64> = (-reach..=reach).map(|distance| bias.bucket(distance) as i64).collect();
        let distances = self.distances();
        let (low, high) = (self.nodes.int(-reach), self.nodes.int(reach));
        let near = self.nodes.add("Max", &[&distances, &low]);
        let near = self.nodes.add("Min", &[&near, &high]);
        let near = self.moved(&near, reach);
        let steps = self.nodes.ints(&steps);
        let step = self.nodes.gather(&steps, &near, 0);
        let axes = self.nodes.ints(&[1]);
        let step = self.nodes.add("Squeeze", &[&step, &axes]);
        let table = self.weight(bias.table)?;
        let table = self.nodes.reshape(&table, &[-1, heads as i64]);
        let added = self.nodes.gather(&table, &step, 0);
        let added = self.nodes.transpose(&added, &[0, 3, 1, 2]);
        self.cached_values.insert(word, added.clone());
        Ok(added)
    }

    /// Returns the attention mask as booleans that broadcast to the scores, or `None` if every query attends to every
    /// key.
    fn seen(&mut self, attention_mask: AttentionMask) -> Result<Option<String>> {
        let word = format!("seen {attention_mask:?}");
        if let Some(value) = self.cached_values.get(&word) {
            return Ok(Some(value.clone()));
        }
        let mask = if attention_mask == AttentionMask::CrossAttention {
            self.memory_mask.clone()
        } else {
            self.inputs.mask.clone()
        };
        let there = mask.map(|mask| {
            let there = self.nodes.cast(&mask, Element::Bool);
            self.nodes.unsqueeze(&there, &[1, 2])
        });
        let near = match attention_mask {
            AttentionMask::Full | AttentionMask::CrossAttention | AttentionMask::LongformerGlobal => None,
            AttentionMask::Causal(window) | AttentionMask::CausalEncoder(window) => {
                let distances = self.distances();
                let zero = self.nodes.int(0);
                let before = self.nodes.add("LessOrEqual", &[&distances, &zero]);
                Some(match window {
                    None => before,
                    Some(window) => {
                        let least = self.nodes.int(-(window as i64));
                        let near = self.nodes.add("Greater", &[&distances, &least]);
                        self.nodes.add("And", &[&before, &near])
                    }
                })
            }
            AttentionMask::StreamingLlm { .. } => {
                return Err(unwritten("a sliding window with attention sinks"));
            }
            AttentionMask::BigBird { .. } => return Err(unwritten("block-sparse attention")),
            AttentionMask::Linformer => return Err(unwritten("keys and values projected over positions")),
            AttentionMask::LocalWindow(reach) => Some(self.within(reach)),
            AttentionMask::LongformerLocal(reach) => {
                let near = self.within(reach);
                let marks = self.marks()?;
                let marks = self.nodes.cast(&marks, Element::Bool);
                let marks = self.nodes.unsqueeze(&marks, &[1, 2]);
                Some(self.nodes.add("Or", &[&near, &marks]))
            }
        };
        let seen = match (near, there) {
            (Some(near), Some(there)) => Some(self.nodes.add("And", &[&near, &there])),
            (near, there) => near.or(there),
        };
        if let Some(seen) = &seen {
            self.cached_values.insert(word, seen.clone());
        }
        Ok(seen)
    }

    fn within(&mut self, reach: usize) -> String {
        let distances = self.distances();
        let far = self.nodes.add("Abs", &[&distances]);
        let reach = self.nodes.int(reach as i64);
        self.nodes.add("LessOrEqual", &[&far, &reach])
    }
}
