//! CUDA: the sources of all kernels, the forward pass of each operation as launches of them, and a device that
//! executes command lists on an NVIDIA GPU.
//!
//! The crate has three parts. The **kernels** are CUDA C++ in the folder `kernels/`, embedded as text. They include no
//! header of CUDA: `machine.cuh` wraps each instruction that is not plain C++. So they compile with NVRTC alone, with
//! nvcc ahead of time, and with an ordinary C++ compiler for the emulator that tests run them on. The **operations**
//! ([`ops`]) say which kernels and matmuls the forward pass of a graph's node needs. The **driver**, behind the feature
//! `driver`, is the only code that talks to a GPU. It loads NVIDIA's libraries when a device is opened: building needs
//! no CUDA, and a program that was built with the feature starts on machines without it.
//!
//! Nothing here knows of gradients, losses or optimizers, though their kernels are here: the trainer appends its own
//! launches by name to a [`CommandList`](siskin_device::CommandList), and [`KernelSource::of_kernel`] finds the file of
//! each name.
//!
//! These types carry the design:
//!
//! - [`CudaForward`] is implemented by every operation of a graph; one without an implementation does not compile. It
//!   takes a node, the weights' places ([`ops::DeviceWeight`]), the sequences of a batch and the places of the tensors,
//!   and appends to a [`CommandBuilder`].
//! - [`CommandBuilder`] is a command list with what kernels need beside tensors: scratch memory, and tables of the batch
//!   such as token ids and the keys that each query attends to ([`BatchTables`]). The caller allocates both. It lowers a
//!   batch once to learn their sizes, and again when they are too small.
//! - [`KernelSource`] is a kernel file: its name and its text. [`KernelSource::ALL`] lists all files, and
//!   [`KernelSource::translation_unit`] is what a compiler reads, with the included headers.
//! - `CudaDevice` (feature `driver`) implements [`Device`](siskin_device::Device) on one stream of one GPU. It owns
//!   what must outlive a launch: the context, loaded modules, cuBLASLt's descriptors and workspace, pinned memory, and
//!   captured graphs.
//! - [`PointwiseFunction`] numbers the functions that elementwise kernels select at run time, which the matmul
//!   epilogue of the driver needs as well as its callers.
//!
//! Operations see whole sequences: attention reads keys and values from its inputs, not from a KV cache, and recurrent
//! states begin with a sequence.
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
//! The commands of a graph with one operation, and the file of the kernel that it launches:
//!
//! ```
//! use siskin_cuda::ops::{self, OpCall, OpTensors, RowSequences};
//! use siskin_cuda::{BatchTables, CommandBuilder, KernelSource, OpScratch};
//! use siskin_device::{Command, CommandList, Precision};
//! use siskin_graph::op::Scale;
//! use siskin_graph::{BatchSequences, Graph, Node, Op, RowKind, ValueShape};
//!
//! let shape = ValueShape { rows: RowKind::Tokens, columns: 64 };
//! let scale = Node { op: Op::Scale(Scale { factor: 0.5 }), inputs: vec![0], output: 1 };
//! let graph = Graph { nodes: vec![scale], values: vec![shape; 2], output: 1, ..Graph::default() };
//! let mut batch = BatchSequences::default();
//! batch.push(&[5, 7, 9], &[]);
//!
//! let mut commands = CommandList::new(Precision::Bf16);
//! let (mut tables, mut scratch) = (BatchTables::default(), OpScratch::default());
//! let mut work =
//!     CommandBuilder { commands: &mut commands, tables: &mut tables, scratch: &mut scratch };
//! let sequences = RowSequences { name: "decoder", batch: &batch };
//! let call = OpCall {
//!     graph: &graph,
//!     node: &graph.nodes[0],
//!     weights: &[],
//!     queries: sequences,
//!     keys: sequences,
//!     rows: batch.row_counts().of(shape.rows),
//!     stride: shape.columns,
//! };
//! ops::forward(&mut work, &call, OpTensors { inputs: &[4096], out: 8192, saved: 0 });
//!
//! let Some(Command::Launch(launch)) = commands.iter().next() else { panic!("a launch") };
//! let source = KernelSource::of_kernel(&launch.kernel).expect("it is a kernel");
//! assert_eq!((launch.kernel.as_str(), source.name), ("activate_bf16", "elementwise"));
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
#![deny(
    clippy::wildcard_enum_match_arm,
    reason = "every match over operations names what it does with each of them"
)]

mod batch_tables;
mod command_builder;
#[cfg(feature = "driver")]
mod driver;
#[cfg(feature = "driver")]
mod env;
pub mod ops;
mod pointwise;
mod sources;

pub use batch_tables::{BatchTables, ListCache};
pub use command_builder::{CommandBuilder, OpScratch, flag, int};
#[cfg(feature = "driver")]
pub use driver::{CudaDevice, GpuMonitor, GpuStatus};
pub use ops::CudaForward;
pub use pointwise::PointwiseFunction;
pub use sources::KernelSource;
