//! Prints a plan as text, for `siskin inspect --plan` and for snapshot tests.

use siskin_kernels::panel::InputKind;
use std::fmt;

use super::{Epilogue, Plan, PlanStep};
use siskin_graph::AttentionMask;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (batch, output_rows) = (self.max_rows.tokens, self.max_rows.outputs);
        writeln!(
            f,
            "batch of {batch} rows, {output_rows} output rows; arena {} KiB; {} steps",
            self.words / 256,
            self.steps.len()
        )?;
        for (index, step) in self.steps.iter().enumerate() {
            write!(f, "{index:4}  ")?;
            match step {
                PlanStep::Rows { rows, ops } => {
                    write!(f, "rows ({rows:?}):")?;
                    for op in ops {
                        let name = format!("{op:?}");
                        write!(f, " {}", name.split([' ', '{']).next().unwrap_or_default())?;
                    }
                    writeln!(f)?;
                }
                PlanStep::Linear { rows, input, kind, parts, after } => {
                    let kind = match kind {
                        InputKind::Float => "float",
                        InputKind::Quantized => "int8",
                        InputKind::Rotated => "rotated int8",
                    };
                    let outputs: Vec<usize> = parts.iter().map(|part| part.to.columns).collect();
                    let after = match after {
                        Epilogue::Nothing => String::new(),
                        Epilogue::Plus(_) => " + residual".to_owned(),
                        Epilogue::Activate(kind) => format!(", {kind:?}"),
                        Epilogue::Gate(kind) => format!(", gated: {kind:?} of the first times the second"),
                    };
                    writeln!(f, "matmul ({rows:?}): {kind} input of {} → {outputs:?}{after}", input.columns)?;
                }
                PlanStep::Arrange { routing, .. } => {
                    writeln!(f, "dispatch rows to {} of {} experts", routing.top_k, routing.experts)?
                }
                PlanStep::ExpertLinear { input, parts, .. } => {
                    let outputs = parts.first().map_or(0, |(_, part)| part.to.columns);
                    writeln!(f, "expert matmul: input of {} → {outputs}", input.columns)?;
                }
                PlanStep::LoraLinear { rows, input, parts, .. } => {
                    let outputs: Vec<usize> = parts.iter().map(|(_, part)| part.to.columns).collect();
                    writeln!(f, "adapter matmul ({rows:?}): input of {} → {outputs:?}", input.columns)?;
                }
                PlanStep::StoreKv { attention, .. } => {
                    writeln!(f, "store keys and values of layer {}", attention.layer)?
                }
                PlanStep::Attention { attention, .. } => {
                    let (heads, kv, size) = (attention.heads, attention.kv_heads, attention.head_size);
                    let attention_mask = match attention.attention_mask {
                        AttentionMask::Causal(None) | AttentionMask::CausalEncoder(None) => String::new(),
                        AttentionMask::Causal(Some(window)) | AttentionMask::CausalEncoder(Some(window)) => {
                            format!(", window {window}")
                        }
                        AttentionMask::StreamingLlm { window, sinks: first } => {
                            format!(", window {window} and {first} attention sinks")
                        }
                        AttentionMask::BigBird { size, .. } => format!(", BigBird blocks of {size}"),
                        AttentionMask::Linformer => ", full, projected positions".to_owned(),
                        AttentionMask::Full => ", full".to_owned(),
                        AttentionMask::LocalWindow(reach) => format!(", local, {reach} to either side"),
                        AttentionMask::LongformerLocal(reach) => {
                            format!(", local, {reach} to either side and global tokens")
                        }
                        AttentionMask::LongformerGlobal => ", full, from global tokens".to_owned(),
                        AttentionMask::CrossAttention => ", cross-attention".to_owned(),
                    };
                    writeln!(
                        f,
                        "attend layer {}: {heads} heads on {kv} of {size}{attention_mask}",
                        attention.layer
                    )?;
                }
                PlanStep::CausalConv1d { taps, to, .. } => {
                    writeln!(f, "causal conv1d over {taps} tokens of {} columns", to.columns)?
                }
                PlanStep::LinearAttention { attention, .. } => {
                    let (heads, keys, values) = (attention.heads, attention.key_size, attention.value_size);
                    writeln!(f, "linear attention: {heads} heads of {keys} × {values}")?;
                }
            }
        }
        Ok(())
    }
}
