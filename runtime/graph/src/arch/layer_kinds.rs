//! Attention variants that a configuration may request for any family.

use super::ConfigReader;
use crate::op::Activate;
use crate::{ActivationFunction, Attention, AttentionMask, Graph, LinearAttention, Op, StateUpdate, ValueId};
use siskin_format::{Error, Result};

/// The key of the feature map of linear attention.
const FEATURE_MAP: &str = "attention_feature_map";

/// Applies the attention variant that `config` requests.
pub(super) fn apply(config: &ConfigReader, graph: Graph) -> Result<Graph> {
    match config.word(&[FEATURE_MAP])? {
        None => Ok(graph),
        Some("elu") => linear(graph),
        Some(other) => {
            Err(Error::unsupported(format!("config.{FEATURE_MAP}"), format!("feature map '{other}'")))
        }
    }
}

/// Linear attention with the feature map elu(x) + 1, as a recurrent state of constant size.
fn linear(mut graph: Graph) -> Result<Graph> {
    let nodes = std::mem::take(&mut graph.nodes);
    let mut state = graph.states().map(|(state, _)| state + 1).max().unwrap_or(0);
    for mut node in nodes {
        if let Op::Attention(attention) = &node.op
            && attention.attention_mask != AttentionMask::CrossAttention
        {
            let attention = linear_attention(attention, state)?;
            state += 1;
            for input in node.inputs.iter_mut().take(2) {
                *input = mapped(&mut graph, *input);
            }
            node.op = attention.into();
        }
        graph.nodes.push(node);
    }
    Ok(graph)
}

fn linear_attention(attention: &Attention, state: usize) -> Result<LinearAttention> {
    let rules = [
        (AttentionMask::Causal(None), StateUpdate::Additive),
        (AttentionMask::Full, StateUpdate::BidirectionalAdditive),
    ];
    let rule = rules.into_iter().find(|(mask, _)| *mask == attention.attention_mask).map(|(_, rule)| rule);
    let plain = attention.alibi.is_empty() && attention.bias.is_none() && attention.sinks.is_none();
    let Some(rule) = rule.filter(|_| plain && attention.softcap.is_none()) else {
        let message = format!(
            "cannot be combined with sliding windows, biases, softcaps or sinks, as in layer {}",
            attention.layer
        );
        return Err(Error::unsupported(format!("config.{FEATURE_MAP}"), message));
    };
    Ok(LinearAttention {
        state,
        heads: attention.heads,
        query_heads: attention.heads,
        key_heads: attention.kv_heads,
        value_heads: attention.kv_heads,
        key_size: attention.head_size,
        value_size: attention.head_size,
        rule,
    })
}

/// Applies the feature map to a value.
fn mapped(graph: &mut Graph, input: ValueId) -> ValueId {
    graph.push(Activate { function: ActivationFunction::EluPlusOne }, &[input])
}
