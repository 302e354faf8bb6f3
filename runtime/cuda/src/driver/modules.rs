//! Loaded kernels: compiled ahead of time by `cargo xtask cuda`, or by NVRTC when a file is first needed.

use std::collections::HashMap;
use std::ffi::{CString, c_void};

use cudarc::driver::{result as driver, sys};
use siskin_format::{Error, Result};

use super::libraries::{check, failed};
use super::nvrtc::compile;
use crate::{KernelSource, env};

/// The shared memory that a block may use without opting in to more, static and dynamic together, in bytes.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;

/// The loaded modules.
pub(super) struct LoadedModules {
    /// The compute capability, such as 90.
    compute_capability: i32,
    /// By name of the kernel file.
    modules: HashMap<&'static str, sys::CUmodule>,
    functions: HashMap<String, KernelFunction>,
}

/// A kernel of a loaded module.
#[derive(Clone, Copy)]
struct KernelFunction {
    function: sys::CUfunction,
    /// The dynamic shared memory that it is configured for, in bytes.
    shared: u32,
}

impl LoadedModules {
    /// Kernels for devices of this compute capability.
    pub(super) fn new(compute_capability: i32) -> Self {
        Self { compute_capability, modules: HashMap::new(), functions: HashMap::new() }
    }

    /// Returns a kernel that may use `shared` bytes of shared memory.
    pub(super) fn function(&mut self, kernel: &str, shared: u32) -> Result<sys::CUfunction> {
        if let Some(known) = self.functions.get(kernel).filter(|known| shared <= known.shared) {
            return Ok(known.function);
        }
        let module = self.module(kernel)?;
        let name = CString::new(kernel).map_err(|error| failed("name a kernel", error))?;
        // SAFETY: modules stay loaded as long as `self` lives.
        let function =
            check(&format!("find kernel {kernel}"), unsafe { driver::module::get_function(module, name) })?;
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        let static_shared = function_attribute(kernel, function, which)?;
        if shared + static_shared > DEFAULT_SHARED_BYTES {
            let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was just returned by the driver.
            let outcome = unsafe { driver::function::set_function_attribute(function, which, shared as i32) };
            check(&format!("configure {kernel} with {shared} bytes of shared memory"), outcome)?;
        }
        let shared = shared.max(DEFAULT_SHARED_BYTES.saturating_sub(static_shared));
        self.functions.insert(kernel.to_owned(), KernelFunction { function, shared });
        Ok(function)
    }

    fn module(&mut self, kernel: &str) -> Result<sys::CUmodule> {
        let Some(source) = KernelSource::of_kernel(kernel) else {
            return Err(Error::unsupported("device", format!("no file contains the kernel {kernel}")));
        };
        if let Some(&module) = self.modules.get(source.name) {
            return Ok(module);
        }
        let image = match env::cuda_kernels() {
            Some(folder) => {
                let path = folder.join(source.name).with_extension("fatbin");
                let place = path.display().to_string();
                std::fs::read(path).map_err(|error| Error::argument(place, error.to_string()))?
            }
            None => compile(source, self.compute_capability)?,
        };
        // SAFETY: the image is zero-terminated PTX from NVRTC, or a file that nvcc compiled.
        let loaded = unsafe { driver::module::load_data(image.as_ptr().cast::<c_void>()) };
        let module = check(&format!("load the kernels of {}.cu", source.name), loaded)?;
        self.modules.insert(source.name, module);
        Ok(module)
    }
}

/// Returns an attribute of a kernel.
fn function_attribute(
    kernel: &str,
    function: sys::CUfunction,
    which: sys::CUfunction_attribute,
) -> Result<u32> {
    // SAFETY: the function is of a loaded module.
    let value = unsafe { driver::function::get_function_attribute(function, which) };
    Ok(u32::try_from(check(&format!("query {kernel}"), value)?).unwrap_or(0))
}

impl Drop for LoadedModules {
    fn drop(&mut self) {
        for (_, module) in self.modules.drain() {
            // SAFETY: it was loaded here, and is unloaded once; the device has finished all previous work.
            let _ = unsafe { driver::module::unload(module) };
        }
    }
}
