//! The kernels of `kernels/cuda/`: compiled ahead of time by `cargo xtask cuda`, or by NVRTC when a file is first
//! needed.

use std::collections::HashMap;
use std::ffi::{CString, c_void};

use cudarc::driver::result as driver;
use cudarc::driver::sys;
use cudarc::nvrtc::result as nvrtc;
use cudarc::nvrtc::sys as nvrtc_sys;
use siskin_format::{Error, Result};

use super::check;
use crate::knobs;

/// Included headers, in order of dependency.
const HEADERS: [&str; 6] = [
    include_str!("../../../../kernels/cuda/machine.cuh"),
    include_str!("../../../../kernels/cuda/common.cuh"),
    include_str!("../../../../kernels/cuda/sums.cuh"),
    include_str!("../../../../kernels/cuda/attention.cuh"),
    include_str!("../../../../kernels/cuda/attention_dense.cuh"),
    include_str!("../../../../kernels/cuda/optimizer.cuh"),
];

macro_rules! files {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../../kernels/cuda/", $name, ".cu")))),*]
    };
}

/// All kernel files, and their source.
const FILES: [(&str, &str); 30] = files![
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
    "experts",
    "fp8",
    "im2col",
    "indexing",
    "linear_attention",
    "lion",
    "muon",
    "norm",
    "optimizer",
    "rope",
    "routers",
    "row_norms",
    "sgd",
    "sums"
];

/// The shared memory that a block may use without opting in to more, in bytes.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;

/// The PTX target where NVRTC does not know the device: the newest that all supported releases know.
const FALLBACK_TARGET: &str = "compute_90";

/// The loaded modules.
pub(super) struct LoadedModules {
    /// The compute capability, such as 90.
    device: i32,
    modules: HashMap<&'static str, sys::CUmodule>,
    functions: HashMap<String, (sys::CUfunction, u32)>,
}

/// Returns the file of a kernel: its entries begin with the kernel's name without suffixes for types and sizes.
fn file_of(kernel: &str) -> Option<(&'static str, &'static str)> {
    let named = |name: &str, text: &str| {
        ["ENTRY(", "ENTRY_WITH_BLOCKS("].iter().any(|entry| {
            text.contains(&format!("{entry}{name},")) || text.contains(&format!("{entry}{name}_##"))
        })
    };
    let mut name = kernel;
    loop {
        if let Some(found) = FILES.into_iter().find(|(_, text)| named(name, text)) {
            return Some(found);
        }
        name = &name[..name.rfind('_')?];
    }
}

/// Returns a file and its includes as one source text.
fn source(text: &str) -> String {
    let own = |line: &&str| !line.starts_with("#include \"") && *line != "#pragma once";
    let lines = HEADERS.iter().flat_map(|shared| shared.lines()).chain(text.lines()).filter(own);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// An NVRTC program, destroyed on drop.
struct NvrtcProgram {
    program: nvrtc_sys::nvrtcProgram,
    _text: CString,
}

impl Drop for NvrtcProgram {
    fn drop(&mut self) {
        // SAFETY: it was created by NVRTC, and nothing else destroys it.
        let _ = unsafe { nvrtc::destroy_program(self.program) };
    }
}

impl NvrtcProgram {
    fn new(text: &str) -> Result<Self> {
        let text = CString::new(source(text)).map_err(|error| super::failed("read kernels", error))?;
        let program = check("compile kernels", nvrtc::create_program(&text, None))?;
        Ok(Self { program, _text: text })
    }

    fn compile(&self, target: &str) -> std::result::Result<(), nvrtc::NvrtcError> {
        let target = format!("--gpu-architecture={target}");
        // Without the second option, NVRTC takes nested functions for host functions.
        let options = ["--std=c++17", "-default-device", &target];
        // SAFETY: the program lives as long as `self`.
        unsafe { nvrtc::compile_program(self.program, &options) }
    }

    /// Returns the compiler log.
    fn log(&self) -> String {
        // SAFETY: the program lives as long as `self`.
        let log = unsafe { nvrtc::get_program_log(self.program) }.unwrap_or_default();
        let log: Vec<u8> = log.iter().map(|&byte| byte as u8).collect();
        String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned()
    }

    /// Returns the cubin for a device.
    fn cubin(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program lives as long as `self`; the buffer has as many bytes as NVRTC says that it writes.
        unsafe {
            check("compile kernels", nvrtc_sys::nvrtcGetCUBINSize(self.program, &raw mut size).result())?;
            let mut bytes = vec![0_u8; size];
            check(
                "compile kernels",
                nvrtc_sys::nvrtcGetCUBIN(self.program, bytes.as_mut_ptr().cast()).result(),
            )?;
            Ok(bytes)
        }
    }

    /// Returns the PTX for a compute capability and later ones, zero-terminated.
    fn ptx(&self) -> Result<Vec<u8>> {
        // SAFETY: the program lives as long as `self`.
        let code = check("compile kernels", unsafe { nvrtc::get_ptx(self.program) })?;
        Ok(code.iter().map(|&byte| byte as u8).collect())
    }
}

/// Compiles a file for a device. A driver may be older than NVRTC and refuse its PTX but accept a cubin; NVRTC may be
/// older than the device and not know it, and then only PTX is available.
fn compile(name: &str, text: &str, device: i32) -> Result<Vec<u8>> {
    let wrong = |source: &NvrtcProgram, error| {
        let message = format!("{name}.cu does not compile ({error:?}): {}", source.log());
        Error::unsupported("device", message)
    };
    let source = NvrtcProgram::new(text)?;
    match source.compile(&format!("sm_{device}")) {
        Ok(()) => source.cubin(),
        Err(nvrtc::NvrtcError(nvrtc_sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION)) => {
            let source = NvrtcProgram::new(text)?;
            source.compile(FALLBACK_TARGET).map_err(|error| wrong(&source, error))?;
            source.ptx()
        }
        Err(error) => Err(wrong(&source, error)),
    }
}

impl LoadedModules {
    /// Kernels for devices of this compute capability.
    pub(super) fn new(device: i32) -> Self {
        Self { device, modules: HashMap::new(), functions: HashMap::new() }
    }

    /// Returns a kernel that may use `shared` bytes of shared memory.
    pub(super) fn function(&mut self, kernel: &str, shared: u32) -> Result<sys::CUfunction> {
        if let Some(&(function, most)) = self.functions.get(kernel)
            && shared <= most
        {
            return Ok(function);
        }
        let module = self.module(kernel)?;
        let name = CString::new(kernel).map_err(|error| super::failed("name a kernel", error))?;
        // SAFETY: modules stay loaded as long as `self` lives.
        let function =
            check(&format!("find kernel {kernel}"), unsafe { driver::module::get_function(module, name) })?;
        if shared > DEFAULT_SHARED_BYTES {
            let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was just returned by the driver.
            let outcome = unsafe { driver::function::set_function_attribute(function, which, shared as i32) };
            check(&format!("configure {kernel} with {shared} bytes of shared memory"), outcome)?;
        }
        self.functions.insert(kernel.to_owned(), (function, shared.max(DEFAULT_SHARED_BYTES)));
        Ok(function)
    }

    fn module(&mut self, kernel: &str) -> Result<sys::CUmodule> {
        let Some((name, text)) = file_of(kernel) else {
            return Err(Error::unsupported("device", format!("no file contains the kernel {kernel}")));
        };
        if let Some(&module) = self.modules.get(name) {
            return Ok(module);
        }
        let image = match knobs::cuda_kernels() {
            Some(folder) => {
                let path = folder.join(name).with_extension("fatbin");
                let place = path.display().to_string();
                std::fs::read(path).map_err(|error| Error::argument(place, error.to_string()))?
            }
            None => compile(name, text, self.device)?,
        };
        // SAFETY: the image is zero-terminated PTX from NVRTC, or a file that nvcc compiled.
        let loaded = unsafe { driver::module::load_data(image.as_ptr().cast::<c_void>()) };
        let module = check(&format!("load the kernels of {name}.cu"), loaded)?;
        self.modules.insert(name, module);
        Ok(module)
    }
}

impl Drop for LoadedModules {
    fn drop(&mut self) {
        for (_, module) in self.modules.drain() {
            // SAFETY: it was loaded here, and is unloaded once; the device has finished all previous work.
            let _ = unsafe { driver::module::unload(module) };
        }
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
        ];
        for (kernel, file) in rows {
            assert_eq!(file_of(kernel).map(|(name, _)| name), Some(file), "{kernel}");
        }
        assert_eq!(file_of("nothing"), None);
    }

    /// NVRTC needs no device.
    #[test]
    fn every_file_compiles_with_nvrtc() {
        // SAFETY: opens the library, whose initializers have no other side effects.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            eprintln!("skipped: no NVRTC");
            return;
        }
        // PTX takes a fraction of the time of machine code, which `cargo xtask cuda` makes with nvcc.
        for (name, text) in FILES {
            let source = NvrtcProgram::new(text).unwrap_or_else(|error| panic!("{error}"));
            source
                .compile("compute_80")
                .unwrap_or_else(|error| panic!("{name}.cu: {error:?} {}", source.log()));
        }
        let (name, text) = FILES[FILES.len() - 1];
        let image = compile(name, text, 80).unwrap_or_else(|error| panic!("{error}"));
        assert!(image.starts_with(b"\x7fELF"), "{name}.cu");
        let image = compile(name, text, 9999).unwrap_or_else(|error| panic!("{error}"));
        assert!(image.ends_with(&[0]) && String::from_utf8_lossy(&image).contains(".target sm_90"), "PTX");
    }
}
