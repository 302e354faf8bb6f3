//! CUDA: the sources of all kernels, and a device that executes command lists on an NVIDIA GPU.
//!
//! The crate has two parts. The **kernels** are CUDA C++ in the folder `kernels/`, embedded as text. They include no
//! header of CUDA: `machine.cuh` wraps each instruction that is not plain C++. So they compile with NVRTC alone, with
//! nvcc ahead of time, and with an ordinary C++ compiler for the emulator that tests run them on. The **driver**,
//! behind the feature `driver`, is the only code that talks to a GPU. It loads NVIDIA's libraries when a device is
//! opened: building needs no CUDA, and a program that was built with the feature starts on machines without it.
//!
//! Nothing here knows of models, gradients or optimizers. Callers append launches by name to a
//! [`CommandList`](siskin_device::CommandList); [`KernelSource::of_kernel`] finds the file of each name.
//!
//! Three types carry the design:
//!
//! - [`KernelSource`] is a kernel file: its name and its text. [`KernelSource::ALL`] lists all files, and
//!   [`KernelSource::translation_unit`] is what a compiler reads, with the included headers.
//! - `CudaDevice` (feature `driver`) implements [`Device`](siskin_device::Device) on one stream of one GPU. It owns
//!   what must outlive a launch: the context, loaded modules, cuBLASLt's descriptors and workspace, pinned memory, and
//!   captured graphs.
//! - [`PointwiseFunction`] numbers the functions that elementwise kernels select at run time, which the matmul
//!   epilogue of the driver needs as well as its callers.
//!
//! # What a device does with a list
//!
//! The first time that a list is run, its commands are enqueued one by one; kernels are compiled when a file is first
//! needed, and cuBLASLt's heuristic chooses an algorithm for each new matmul shape. The second time, the commands are
//! captured as a CUDA graph. From then on, an equal list is one launch of that graph. A bounded number of graphs is
//! kept, least recently used first to go. A list that cannot be captured is enqueued command by command forever.
//!
//! The environment variable `SISKIN_CUDA_KERNELS` names a folder of kernels that `cargo xtask cuda` has compiled ahead
//! of time; then NVRTC is not used.
//!
//! # Example
//!
//! ```
//! use siskin_cuda::KernelSource;
//!
//! let source = KernelSource::of_kernel("attention_bf16_64").expect("it is a kernel");
//! assert_eq!(source.name, "attention");
//! assert!(source.translation_unit().contains("ENTRY"));
//! ```
//!
//! With a GPU and the feature `driver`:
//!
#![cfg_attr(feature = "driver", doc = "```no_run")]
#![cfg_attr(not(feature = "driver"), doc = "```ignore")]
//! use siskin_cuda::CudaDevice;
//! use siskin_device::{CommandList, Device, KernelArgument, Precision};
//!
//! let mut gpu = CudaDevice::open(0)?;
//! let [x, y] = [gpu.allocate(4096)?, gpu.allocate(4096)?];
//! gpu.write(x, &[0; 4096])?;
//! let mut commands = CommandList::new(Precision::F32);
//! let [from, to] = [x, y].map(KernelArgument::Ptr);
//! commands.elementwise("copy_or_accumulate", 1024, &[from, to, KernelArgument::Int(0)]);
//! gpu.run(&commands)?;
//! # Ok::<(), siskin_format::Error>(())
//! ```

#[cfg(feature = "driver")]
mod driver;
#[cfg(feature = "driver")]
mod knobs;
mod pointwise;
mod sources;

#[cfg(feature = "driver")]
pub use driver::CudaDevice;
pub use pointwise::PointwiseFunction;
pub use sources::KernelSource;
