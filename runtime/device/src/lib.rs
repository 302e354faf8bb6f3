//! The interface between programs that plan work for an accelerator and the devices that execute it.
//!
//! A program that uses a GPU usually calls its driver step by step: allocate, copy, launch, synchronize. Here the two
//! halves are separate. A planner, such as the trainer, computes where every tensor lies and appends commands to a
//! list. A device executes whole lists. The list is plain data: it can be compared, sliced, printed and cached, and
//! nothing in it depends on the driver. That has three consequences:
//!
//! - **An equal list can be replayed.** A device compares a list with those that it has executed before; on CUDA an
//!   equal list runs as a captured graph, which costs one call instead of thousands.
//! - **A list can run anywhere.** Tests execute the lists of a training step on an emulator without a GPU, and on a GPU
//!   with the same results.
//! - **A list can run in parts.** To observe or time an operation, its commands are sliced from the list; the bits of
//!   the results stay the same.
//!
//! Three types carry the design:
//!
//! - [`Device`] is the trait that a device implements: memory that is allocated, written and read by address, and
//!   [`Device::run`]. [`DeviceCapabilities`] says what a planner must know beforehand, such as the shared memory of a
//!   block.
//! - [`CommandList`] is a list of kernel launches, matmuls and memsets in the order in which they take effect. Kernels
//!   are named; which names exist is up to the device.
//! - [`ArenaPlan`] assigns offsets in one allocation to buffers whose lifetimes are known, so that buffers that are
//!   never live together share memory. It knows no device: steps on the CPU are laid out by it as well.
//!
//! The crate contains no driver and no kernel. `siskin-cuda` implements [`Device`] for NVIDIA's GPUs.
//!
//! # Example
//!
//! Adding two tensors of a thousand elements, on any device that has the kernel `add`:
//!
//! ```
//! use siskin_device::{CommandList, Device, KernelArgument, Precision};
//!
//! fn add(device: &mut impl Device, numbers: &[u8]) -> siskin_format::Result<Vec<u8>> {
//!     let [a, b, out] = [device.allocate(4000)?, device.allocate(4000)?, device.allocate(4000)?];
//!     device.write(a, numbers)?;
//!     device.write(b, numbers)?;
//!     let mut commands = CommandList::new(Precision::F32);
//!     commands.elementwise("add", 1000, &[a, b, out].map(KernelArgument::Ptr));
//!     device.run(&commands)?;
//!     let mut sums = vec![0; 4000];
//!     device.read(out, &mut sums)?;
//!     Ok(sums)
//! }
//! ```
//!
//! # Conventions
//!
//! Addresses are [`DevicePtr`]; 0 means that a tensor is absent. Allocations are aligned to [`ALIGNMENT`] bytes, and
//! planners keep that alignment inside them with [`aligned`]. Kernels that exist in several precisions have names that
//! end in that of the precision, see [`CommandList::kernel_name`]. Commands take effect in order, as if each began
//! after the one before ended.

mod address;
mod arena;
mod command;
mod command_list;
mod device;
mod precision;

pub use address::{ALIGNMENT, DevicePtr, aligned};
pub use arena::{ArenaPlan, BufferLifetime};
pub use command::{
    Command, DeviceMatrix, Fp8Format, Fp8Operand, Fp8Operands, GemmShape, GridSize, KernelArgument, Launch,
    MatmulCommand, MatrixShape,
};
pub use command_list::CommandList;
pub use device::{Device, DeviceCapabilities};
pub use precision::Precision;
