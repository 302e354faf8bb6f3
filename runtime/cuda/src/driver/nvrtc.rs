//! Compiling kernels at run time.

use std::ffi::CString;

use cudarc::nvrtc::result as nvrtc;
use cudarc::nvrtc::sys as nvrtc_sys;
use siskin_format::{Error, Result};

use super::libraries::{check, failed};
use crate::KernelSource;

/// The PTX target where NVRTC does not know the device: the newest that all supported releases know.
const FALLBACK_TARGET: &str = "compute_90";

/// An NVRTC program, destroyed on drop.
struct NvrtcProgram {
    program: nvrtc_sys::nvrtcProgram,
    /// See [`KernelSource::is_exact`].
    is_exact: bool,
    _text: CString,
}

impl Drop for NvrtcProgram {
    fn drop(&mut self) {
        // SAFETY: it was created by NVRTC, and nothing else destroys it.
        let _ = unsafe { nvrtc::destroy_program(self.program) };
    }
}

impl NvrtcProgram {
    fn new(source: KernelSource) -> Result<Self> {
        let text = source.translation_unit();
        let text = CString::new(text).map_err(|error| failed("read kernels", error))?;
        let program = check("compile kernels", nvrtc::create_program(&text, None))?;
        Ok(Self { program, is_exact: source.is_exact(), _text: text })
    }

    fn compile(&self, target: &str) -> std::result::Result<(), nvrtc::NvrtcError> {
        self.compile_with(target, &[])
    }

    fn compile_with(&self, target: &str, more: &[&str]) -> std::result::Result<(), nvrtc::NvrtcError> {
        let target = format!("--gpu-architecture={target}");
        // Without the second option, NVRTC takes nested functions for host functions.
        let mut options = [&["--std=c++17", "-default-device", &target], more].concat();
        options.extend(self.is_exact.then_some("--fmad=false"));
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

/// Compiles a file for a device. A driver may be older than NVRTC and reject its PTX but accept a cubin; NVRTC may be
/// older than the device and not know it, and then only PTX is available.
pub(super) fn compile(source: KernelSource, compute_capability: i32) -> Result<Vec<u8>> {
    let wrong = |program: &NvrtcProgram, error| {
        let message = format!("{}.cu does not compile ({error:?}): {}", source.name, program.log());
        Error::unsupported("device", message)
    };
    let program = NvrtcProgram::new(source)?;
    match program.compile(&format!("sm_{compute_capability}")) {
        Ok(()) => program.cubin(),
        Err(nvrtc::NvrtcError(nvrtc_sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION)) => {
            let program = NvrtcProgram::new(source)?;
            program.compile(FALLBACK_TARGET).map_err(|error| wrong(&program, error))?;
            program.ptx()
        }
        Err(error) => Err(wrong(&program, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NVRTC needs no device.
    #[test]
    fn every_file_compiles_with_nvrtc() {
        // SAFETY: opens the library, whose initializers have no other side effects.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            eprintln!("skipped: no NVRTC");
            return;
        }
        // PTX that is not optimized takes a fraction of the time of machine code, which `cargo xtask cuda` makes with nvcc.
        for &source in KernelSource::ALL {
            let program = NvrtcProgram::new(source).unwrap_or_else(|error| panic!("{error}"));
            program
                .compile_with("compute_80", &["--device-debug"])
                .unwrap_or_else(|error| panic!("{}.cu: {error:?} {}", source.name, program.log()));
        }
        let source = KernelSource::ALL[KernelSource::ALL.len() - 1];
        let image = compile(source, 80).unwrap_or_else(|error| panic!("{error}"));
        assert!(image.starts_with(b"\x7fELF"), "{}.cu", source.name);
        let image = compile(source, 9999).unwrap_or_else(|error| panic!("{error}"));
        assert!(image.ends_with(&[0]) && String::from_utf8_lossy(&image).contains(".target sm_90"), "PTX");
    }
}
