//! The sources of all kernels.

/// Included headers, in order of dependency.
const HEADERS: [&str; 12] = [
    include_str!("../kernels/machine.cuh"),
    include_str!("../kernels/common.cuh"),
    include_str!("../kernels/sums.cuh"),
    include_str!("../kernels/attention.cuh"),
    include_str!("../kernels/attention_dense.cuh"),
    include_str!("../kernels/optimizer.cuh"),
    include_str!("../kernels/exact.cuh"),
    include_str!("../kernels/panel.cuh"),
    include_str!("../kernels/libm.cuh"),
    include_str!("../kernels/panel_matmul.cuh"),
    include_str!("../kernels/expert_matmul.cuh"),
    include_str!("../kernels/kv_cache.cuh"),
];

/// A kernel file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSource {
    /// Its name, without extension.
    pub name: &'static str,
    /// Its text, without the headers that it includes.
    pub text: &'static str,
}

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(KernelSource { name: $name, text: include_str!(concat!("../kernels/", $name, ".cu")) }),*]
    };
}

impl KernelSource {
    /// All kernel files.
    pub const ALL: &[Self] = sources![
        "adafactor",
        "adamw",
        "adamw_8bit",
        "attention",
        "attention_backward",
        "attention_backward_dense",
        "attention_delta",
        "attention_dense",
        "cast",
        "causal_conv1d",
        "contrastive",
        "cross_entropy",
        "distillation",
        "elementwise",
        "ema",
        "embed",
        "expert_matmul_blocks",
        "expert_matmul_floats",
        "expert_matmul_k",
        "expert_rows",
        "expert_slots",
        "experts",
        "fp8",
        "gather_taps",
        "im2col",
        "indexing",
        "kv_store",
        "linear_attention",
        "lion",
        "muon",
        "norm",
        "optimizer",
        "paged_attention",
        "panel_matmul_blocks",
        "panel_matmul_floats",
        "panel_matmul_k",
        "panel_matmul_rows",
        "recurrence",
        "rope",
        "routers",
        "row_norms",
        "row_ops",
        "sgd",
        "sums",
    ];

    /// Returns the file of a kernel: its entries begin with the kernel's name without suffixes for types and sizes.
    pub fn of_kernel(kernel: &str) -> Option<Self> {
        let mut name = kernel;
        loop {
            if let Some(found) = Self::ALL.iter().find(|source| source.has_entry(name)) {
                return Some(*found);
            }
            name = &name[..name.rfind('_')?];
        }
    }

    /// Returns whether the file must be compiled without contraction of products and sums into fused multiply-adds: its
    /// results have the bits of the CPU.
    pub fn is_exact(&self) -> bool {
        self.text.contains("#include \"exact.cuh\"")
    }

    fn has_entry(&self, name: &str) -> bool {
        ["ENTRY(", "ENTRY_WITH_BLOCKS("].iter().any(|entry| {
            self.text.contains(&format!("{entry}{name},")) || self.text.contains(&format!("{entry}{name}_##"))
        })
    }

    /// Returns the file and all headers as one text, which includes nothing.
    pub fn translation_unit(&self) -> String {
        let own = |line: &&str| !line.starts_with("#include \"") && *line != "#pragma once";
        let lines = HEADERS.iter().flat_map(|header| header.lines()).chain(self.text.lines()).filter(own);
        lines.flat_map(|line| [line, "\n"]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_found_in_its_file() {
        let rows = [
            ("attention_bf16_64", "attention"),
            ("attention_backward_both_f32_128", "attention_backward"),
            ("attention_delta_bf16", "attention_delta"),
            ("attention_backward_bias", "attention_backward"),
            ("attention_dense_bf16_64", "attention_dense"),
            ("attention_backward_dense_queries_bf16_64", "attention_backward_dense"),
            ("attention_backward_dense_both_f16_128", "attention_backward_dense"),
            ("norm_backward_f16", "norm"),
            ("reduce_parts", "sums"),
            ("sum_results", "cross_entropy"),
            ("add_f32", "elementwise"),
            ("grad_squares", "optimizer"),
            ("adamw_bf16", "adamw"),
            ("adamw_8bit_f16", "adamw_8bit"),
            ("adafactor_f32", "adafactor"),
            ("adafactor_rows", "adafactor"),
            ("muon_bf16", "muon"),
            ("muon_normalize", "muon"),
            ("ema_swap_f32", "ema"),
            ("unpool_sequences_bf16", "contrastive"),
            ("distillation_f32", "distillation"),
            ("to_fp8_bf16", "fp8"),
            ("expert_linear_weights_backward_bf16", "experts"),
            ("assign_slots", "experts"),
            ("router_sums_f32", "routers"),
            ("inverse_row_norms_f16", "row_norms"),
            ("cast_from_f32_f32", "cast"),
            ("rope_f32", "rope"),
            ("embed_backward_f32", "embed"),
            ("gather_rows_f32", "indexing"),
            ("matmul_one_q4k", "panel_matmul_k"),
            ("matmul_many_w8r", "panel_matmul_rows"),
            ("matmul_few_q8", "panel_matmul_blocks"),
            ("matmul_floats_f16", "panel_matmul_floats"),
            ("paged_attention_int14_16", "paged_attention"),
            ("merge_attention", "paged_attention"),
            ("kv_store_int8", "kv_store"),
            ("row_ops", "row_ops"),
        ];
        for (kernel, file) in rows {
            assert_eq!(KernelSource::of_kernel(kernel).map(|source| source.name), Some(file), "{kernel}");
        }
        assert_eq!(KernelSource::of_kernel("nothing"), None);
    }

    #[test]
    fn every_file_of_the_folder_is_listed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .expect("the folder of kernels")
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".cu").map(str::to_owned))
            .collect();
        names.sort();
        assert!(KernelSource::ALL.iter().map(|source| source.name).eq(names.iter().map(String::as_str)));
    }
}
