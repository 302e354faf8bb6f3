//! The device: command lists on one stream of a GPU.

mod context;
mod cublaslt;
mod graph_cache;
mod libraries;
mod modules;
mod nvml;
mod nvrtc;
mod staging;

use std::collections::HashSet;
use std::ffi::c_void;

use cudarc::driver::{result as driver, sys};
use siskin_device::{
    Command, CommandList, Device, DeviceCapabilities, DeviceMatrix, DevicePtr, KernelArgument, Launch,
    MatmulCommand,
};
use siskin_format::{Error, ErrorKind, Result};

use self::context::{CudaContext, CudaStream};
use self::cublaslt::MatmulCache;
use self::graph_cache::{CapturedGraph, GraphCache};
use self::libraries::{check, failed, need_libraries};
use self::modules::LoadedModules;
pub use self::nvml::{GpuMonitor, GpuStatus};
use self::staging::StagingBuffer;
use crate::PointwiseFunction;
use siskin_kernels::functions::ActivationFunction;

/// An NVIDIA GPU.
pub struct CudaDevice {
    context: CudaContext,
    // Fields are dropped in order: the stream last.
    staging: StagingBuffer,
    queue: CommandQueue,
    graphs: GraphCache,
    /// Allocated memory that was not freed.
    allocations: HashSet<DevicePtr>,
    stream: CudaStream,
}

// SAFETY: the driver's functions can be called from any thread; every method makes the context current in the thread that
// it is called from, and takes `&mut self` unless it only queries the device.
unsafe impl Send for CudaDevice {}

/// What enqueuing commands needs.
struct CommandQueue {
    modules: LoadedModules,
    matmuls: MatmulCache,
}

impl CommandQueue {
    /// Enqueues the commands of a list on a stream.
    fn enqueue(&mut self, commands: &CommandList, stream: &CudaStream) -> Result<()> {
        for command in commands.iter() {
            match command {
                Command::Launch(launch) => self.launch(launch, stream)?,
                Command::Matmul(matmul) => self.multiply(matmul, stream)?,
                Command::Clear { ptr, bytes } => {
                    // SAFETY: lists are written for memory that was allocated here, with the sizes that they name.
                    let outcome = unsafe { driver::memset_d8_async(*ptr, 0, *bytes, stream.0) };
                    check("clear memory", outcome)?;
                }
            }
        }
        Ok(())
    }

    /// Enqueues a matmul; if cuBLASLt has no GELU epilogue for it, a kernel applies GELU afterwards.
    fn multiply(&mut self, matmul: &MatmulCommand, stream: &CudaStream) -> Result<()> {
        if matmul.pre_activation == 0 || self.matmuls.has(matmul) {
            return self.matmuls.multiply(matmul, stream);
        }
        let out = DeviceMatrix { ptr: matmul.pre_activation, ..matmul.out };
        self.matmuls.multiply(&MatmulCommand { out, pre_activation: 0, ..*matmul }, stream)?;
        let mut gelu = CommandList::new(matmul.precision);
        let function = PointwiseFunction::Activation(ActivationFunction::GeluTanh).arguments();
        let ptrs = [matmul.pre_activation, matmul.out.ptr].map(KernelArgument::Ptr);
        gelu.elementwise("activate", matmul.shape.m * matmul.shape.n, &[function, ptrs].concat());
        self.enqueue(&gelu, stream)
    }

    fn launch(&mut self, launch: &Launch, stream: &CudaStream) -> Result<()> {
        let function = self.modules.function(&launch.kernel, launch.shared)?;
        // A kernel reads as many bytes as its parameter has: the first of each word.
        let mut words: Vec<u64> = launch
            .arguments
            .iter()
            .map(|argument| match *argument {
                KernelArgument::Ptr(ptr) => ptr,
                KernelArgument::Int(number) => u64::from(number as u32),
                KernelArgument::Long(number) => number as u64,
                KernelArgument::Float(number) => u64::from(number.to_bits()),
            })
            .collect();
        let mut places: Vec<*mut c_void> =
            words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
        let grid = (launch.grid.x, launch.grid.y, launch.grid.z);
        // SAFETY: the function is of a loaded module; lists name kernels with the arguments of their sources, which
        // tests compare with the same list; memory was allocated here.
        let outcome = unsafe {
            let block = (launch.threads, 1, 1);
            driver::launch_kernel(function, grid, block, launch.shared, stream.0, &mut places)
        };
        check(&format!("launch {}", launch.kernel), outcome)
    }
}

impl CudaDevice {
    /// Opens the device with this index, from 0.
    ///
    /// # Errors
    /// If there is no driver, no library or no such device, or its compute capability is too old for the kernels.
    pub fn open(index: usize) -> Result<Self> {
        need_libraries()?;
        let context = CudaContext::open(index)?;
        let stream = CudaStream::new()?;
        Ok(Self {
            context,
            staging: StagingBuffer::new()?,
            queue: CommandQueue {
                modules: LoadedModules::new(context.compute_capability),
                matmuls: MatmulCache::new()?,
            },
            graphs: GraphCache::default(),
            allocations: HashSet::new(),
            stream,
        })
    }
}

impl Device for CudaDevice {
    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities {
            shared_memory: self.context.shared_memory,
            multiprocessors: self.context.multiprocessors,
            workspace: cublaslt::WORKSPACE,
            fp8: self.context.compute_capability >= 89,
            timed: true,
        }
    }

    fn allocate(&mut self, bytes: usize) -> Result<DevicePtr> {
        self.context.set_current()?;
        // SAFETY: lists never read uninitialized memory.
        let outcome = unsafe { driver::malloc_sync(bytes.max(256)) };
        let ptr = outcome.map_err(|error| {
            if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                return Error::new(ErrorKind::Memory, "device", format!("cannot allocate {bytes} bytes"));
            }
            failed(&format!("allocate {bytes} bytes"), error)
        })?;
        self.allocations.insert(ptr);
        Ok(ptr)
    }

    fn free(&mut self, ptr: DevicePtr) -> Result<()> {
        self.context.set_current()?;
        // Captured graphs and pending work may refer to the memory.
        self.stream.synchronize()?;
        self.graphs.clear(&self.stream)?;
        self.allocations.remove(&ptr);
        // SAFETY: the memory was allocated here, and no pending work refers to it.
        check("free memory", unsafe { driver::free_sync(ptr) })
    }

    fn write(&mut self, ptr: DevicePtr, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.set_current()?;
        self.staging.copy(ptr, bytes, &self.stream)
    }

    fn read(&mut self, ptr: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.set_current()?;
        self.staging.read(ptr, bytes, &self.stream)
    }

    fn free_bytes(&self) -> Result<Option<usize>> {
        self.context.set_current()?;
        let (free, _) = check("query its memory", driver::mem_get_info())?;
        Ok(Some(free))
    }

    fn run(&mut self, commands: &CommandList) -> Result<()> {
        self.context.set_current()?;
        if self.graphs.look_up(commands, &self.stream)? {
            let enqueue = || self.queue.enqueue(commands, &self.stream);
            self.graphs.set_captured(CapturedGraph::capture(&self.stream, enqueue));
        }
        // A list that was run once, or that could not be captured, has no graph.
        match self.graphs.newest() {
            Some(graph) => graph.launch(&self.stream),
            None => self.queue.enqueue(commands, &self.stream),
        }
    }

    fn run_uncaptured(&mut self, commands: &CommandList) -> Result<()> {
        self.context.set_current()?;
        self.queue.enqueue(commands, &self.stream)
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // The process may be about to end, and the device with it.
        let _ = self.context.set_current();
        let _ = self.stream.synchronize();
        let _ = self.graphs.clear(&self.stream);
        for ptr in self.allocations.drain() {
            // SAFETY: all work is done, and nothing refers to the memory any more.
            let _ = unsafe { driver::free_sync(ptr) };
        }
    }
}
