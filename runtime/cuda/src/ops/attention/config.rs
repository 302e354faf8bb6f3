//! Which attention kernels apply, their tiles and their shared memory.

use siskin_device::{CommandList, Precision};
use siskin_format::{Error, Result};
use siskin_graph::{Attention, AttentionMask};

use crate::ops::KernelLimits;

/// The head sizes that kernels are compiled for; smaller heads are padded with zeros.
const SIZES: [usize; 3] = [64, 128, 256];

/// Rejects attention variants without kernels, or whose kernels need more than `shared` bytes of shared memory.
pub(super) fn check(description: &Attention, limits: KernelLimits) -> Result<()> {
    let KernelLimits { precision, shared_memory: shared } = limits;
    if description.head_size > SIZES[SIZES.len() - 1] {
        let message = format!(
            "heads of {} columns are wider than the {} of the CUDA kernels; use the CPU",
            description.head_size,
            SIZES[SIZES.len() - 1]
        );
        return Err(Error::unsupported("device", message));
    }
    let max = AttentionConfig::new(precision, description).max_bytes();
    if max > shared {
        let message = format!(
            "heads of {} columns take {max} bytes of shared memory in this precision, and this device has {shared}; \
             use precision = \"bf16\" or the CPU",
            description.head_size
        );
        return Err(Error::unsupported("device", message));
    }
    Ok(())
}

/// Returns true if the kernels of dense attention apply, which assume 16-bit values, one run of keys per query, and
/// scores that are products times a positive factor.
fn is_dense(precision: Precision, description: &Attention) -> bool {
    let one_run = !matches!(
        description.attention_mask,
        AttentionMask::StreamingLlm { .. }
            | AttentionMask::LongformerLocal(_)
            | AttentionMask::BigBird { .. }
    );
    let alone = description.alibi.is_empty() && description.bias.is_none() && description.sinks.is_none();
    let product = description.softcap.is_none() && description.scale > 0.0;
    let fits = description.head_size <= 128 && description.head_size.is_multiple_of(precision.vector_width());
    precision != Precision::F32 && one_run && alone && product && fits
}

/// The tile sizes and shared memory of the attention kernels: `TileConfig` in `runtime/cuda/kernels/attention.cuh`,
/// `dense_step` in `attention_dense.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionConfig {
    /// Whether the kernels of dense attention are used.
    pub dense: bool,
    /// Whether gradients of scores are kept for a bias table.
    bias_table: bool,
    /// The head size that kernels are compiled for.
    pub size: usize,
    /// Rows that a block owns.
    pub tile: usize,
    /// Keys that it processes at a time, and queries.
    step: usize,
    query_step: usize,
    bytes: usize,
    stride: usize,
}

impl AttentionConfig {
    /// Chooses the kernels of an attention.
    pub fn new(precision: Precision, description: &Attention) -> Self {
        let fits = |size: &usize| description.head_size <= *size;
        let size = SIZES.into_iter().find(fits).unwrap_or(SIZES[SIZES.len() - 1]);
        let floats = precision == Precision::F32;
        let dense = is_dense(precision, description);
        Self {
            dense,
            bias_table: description.bias.is_some(),
            size,
            tile: if floats && size > 128 { 32 } else { 64 },
            step: match (floats, size) {
                (true, 256) => 16,
                (true, 128) | (false, 256) => 32,
                (false, 128) if dense => 32,
                _ => 64,
            },
            query_step: match (floats, size) {
                (true, 256) => 16,
                (_, 128 | 256) => 32,
                _ => 64,
            },
            bytes: precision.bytes(),
            stride: size + precision.vector_width(),
        }
    }

    /// Returns the threads of a block.
    pub fn threads(&self) -> usize {
        self.tile / 16 * 32
    }

    /// Returns the name of a forward or backward kernel.
    pub fn name(&self, commands: &CommandList, direction: &str, kind: &str) -> String {
        let dense = if self.dense { "_dense" } else { "" };
        format!("{}_{}", commands.kernel_name(&format!("{direction}{dense}{kind}")), self.size)
    }

    /// Returns the bytes of this many rows.
    fn shared(&self, rows: usize) -> usize {
        rows * self.stride * self.bytes
    }

    /// Returns the rows of both tables that a step loads.
    fn rows(&self, step: usize) -> usize {
        if self.dense { 4 * step } else { 2 * step }
    }

    /// Returns the shared memory of the forward kernel.
    pub fn forward_bytes(&self) -> usize {
        self.shared(self.tile + self.rows(self.step))
    }

    /// Returns the shared memory of the backward kernel for queries, which may keep the gradients of a tile's scores.
    pub fn query_backward_bytes(&self, keeps_scores: bool) -> usize {
        let scores = if keeps_scores { 4 * self.tile * (self.step + 1) } else { 0 };
        self.shared(2 * self.tile + self.rows(self.step)) + scores
    }

    /// Returns the static shared memory of the dense backward kernel for keys, with per-query values for its warps.
    fn static_bytes_for_keys(&self) -> usize {
        if self.dense { 40 * self.query_step } else { 0 }
    }

    /// Returns the dynamic shared memory of the backward kernels for keys.
    pub fn key_backward_bytes(&self) -> usize {
        self.shared(2 * self.tile + self.rows(self.query_step))
    }

    /// Returns the shared memory of the kernel that needs the most.
    pub fn max_bytes(&self) -> usize {
        self.forward_bytes()
            .max(self.query_backward_bytes(self.bias_table))
            .max(self.key_backward_bytes() + self.static_bytes_for_keys())
    }
}

#[cfg(test)]
mod tests {
    use siskin_graph::RelativePositionBias;

    use super::*;

    fn attention(attention_mask: AttentionMask) -> Attention {
        Attention { kv_heads: 1, attention_mask, ..Attention::causal(2, 8) }
    }

    #[test]
    fn dense_kernels_are_used_where_they_apply() {
        let whole = || Attention { head_size: 64, ..attention(AttentionMask::Full) };
        let bias = RelativePositionBias { table: 0, buckets: 8, max_distance: 20, bidirectional: true };
        let cases = [
            (whole(), true),
            (Attention { attention_mask: AttentionMask::Causal(Some(9)), ..whole() }, true),
            (
                Attention { attention_mask: AttentionMask::StreamingLlm { window: 4, sinks: 1 }, ..whole() },
                false,
            ),
            (Attention { attention_mask: AttentionMask::LongformerLocal(3), ..whole() }, false),
            (Attention { head_size: 20, ..whole() }, false),
            (Attention { head_size: 136, ..whole() }, false),
            (Attention { softcap: Some(30.0), ..whole() }, false),
            (Attention { bias: Some(bias), ..whole() }, false),
            (Attention { sinks: Some(0), ..whole() }, false),
            (Attention { alibi: vec![0.5, 0.25], ..whole() }, false),
            (Attention { scale: -1.0, ..whole() }, false),
        ];
        for (description, dense) in cases {
            let config = AttentionConfig::new(Precision::Bf16, &description);
            let name = config.name(&CommandList::new(Precision::Bf16), "attention_backward", "_queries");
            assert_eq!(config.dense, dense, "{description:?}");
            assert_eq!(name.starts_with("attention_backward_dense_queries_bf16_"), dense, "{name}");
            assert!(!AttentionConfig::new(Precision::F32, &description).dense, "{description:?}");
        }
    }

    fn limits(precision: Precision, kilobytes: usize) -> KernelLimits {
        KernelLimits { precision, shared_memory: kilobytes << 10 }
    }

    #[test]
    fn shared_memory_fits_all_devices() {
        let bias = RelativePositionBias { table: 0, buckets: 8, max_distance: 20, bidirectional: true };
        for precision in [Precision::F32, Precision::Bf16, Precision::Fp16] {
            for size in [1, 32, 64, 65, 128, 129, 256] {
                let with_table = |bias| {
                    let description = attention(AttentionMask::Full);
                    AttentionConfig::new(precision, &Attention { head_size: size, bias, ..description })
                        .max_bytes()
                };
                assert!(with_table(None) <= 99 << 10, "{precision:?} {size}: {}", with_table(None));
                let wide = if precision == Precision::F32 { 64 } else { 128 };
                assert_eq!(with_table(Some(bias)) <= 99 << 10, size <= wide, "{precision:?} {size}");
                assert!(with_table(Some(bias)) <= 163 << 10, "{precision:?} {size}");
            }
        }
        let whole = |head_size| Attention { head_size, ..attention(AttentionMask::Full) };
        let with_table = Attention { bias: Some(bias), ..whole(256) };
        assert!(check(&whole(257), limits(Precision::Bf16, 227)).is_err());
        assert!(check(&whole(256), limits(Precision::F32, 99)).is_ok());
        assert!(check(&with_table, limits(Precision::Bf16, 163)).is_ok());
        let rejected = check(&with_table, limits(Precision::Bf16, 99)).unwrap_err();
        assert!(rejected.message().contains("109824 bytes"), "{rejected}");
    }
}
