//! Adapters that differ between the rows of a batch.

use siskin_graph::op::{Affine, LoraWeights, MultiLora};
use siskin_graph::{AdapterSlot, RowKind};
use siskin_kernels::panel::InputKind;

use super::CpuPass;
use super::matmul::panels_of;
use super::prefetch::PrefetchingWorker;
use crate::plan::{BufferView, MatmulPart};

/// Rows per tile. A has few outputs (the rank), so that the work is split by rows.
const LORA_ROWS: usize = 32;
/// The maximum number of panels per tile.
const LORA_PANELS: usize = 64;

impl CpuPass<'_> {
    /// Multiplies the rows of each adapter by its matrix.
    pub(super) fn lora_products(
        &self,
        worker: &PrefetchingWorker<'_>,
        rows: RowKind,
        input: BufferView,
        parts: &[(AdapterSlot, MatmulPart)],
        residual: Option<BufferView>,
    ) -> bool {
        // Both lists have distinct slots, and parts are sorted by them.
        let used = || {
            let part = |slot| parts.binary_search_by_key(slot, |(slot, _)| *slot).ok();
            self.batch.adapters.iter().filter_map(part).map(|index| &parts[index])
        };
        let Some(panels) = used().map(|(_, part)| panels_of(part)).max() else {
            // Every worker skips the step.
            return true;
        };
        let run = (panels / (worker.worker_count * 2)).next_multiple_of(4).clamp(4, LORA_PANELS);
        let (runs, count) = (panels.div_ceil(run), self.row_count(rows));
        let blocks = count.div_ceil(LORA_ROWS);
        self.share(worker, used().count() * runs * blocks, |piece| {
            let Some((slot, part)) = used().nth(piece / (runs * blocks)) else { return };
            let first = piece / blocks % runs * run;
            let panels = first..panels_of(part).min(first + run);
            if panels.is_empty() {
                // This adapter has a lower rank than another one, and so fewer panels.
                return;
            }
            let block = piece % blocks * LORA_ROWS;
            let mut next = block;
            let end = count.min(block + LORA_ROWS);
            while let Some(rows_here) = self.batch.adapter_rows(rows, *slot, next..end) {
                next = rows_here.end;
                self.product(part, count, (input, InputKind::Float), residual, rows_here, panels.clone());
            }
        })
    }

    /// Combines `W x` with the LoRA product, the scale of DoRA and the bias. Overwrites `delta`.
    pub(super) fn lora_sum(
        &self,
        lora: &MultiLora,
        slot: AdapterSlot,
        product: &[f32],
        delta: &mut [f32],
        out: &mut [f32],
    ) {
        let (kernels, vector) = (self.kernels, |weight| self.weights.vector(Some(weight)));
        match lora.adapter(slot) {
            Some(LoraWeights { scaling: Some(Affine { weight, bias }), .. }) => {
                kernels.add()(product, delta, out);
                delta.copy_from_slice(out);
                kernels.affine()(delta, vector(*weight), vector(*bias), out);
            }
            adapter => {
                match lora.bias {
                    Some(bias) => kernels.add()(product, vector(bias), out),
                    None => out.copy_from_slice(product),
                }
                if adapter.is_some() {
                    out.iter_mut().zip(delta).for_each(|(out, delta)| *out += *delta);
                }
            }
        }
    }
}
