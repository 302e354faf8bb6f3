//! An NVIDIA GPU through the CUDA driver API. The libraries are loaded at run time: a missing library is an error of
//! the first call, and everything builds without them.

mod kernels;
mod matmul;

use std::collections::HashSet;
use std::ffi::c_void;

use cudarc::driver::result as driver;
use cudarc::driver::sys;
use siskin_format::{Error, ErrorKind, Result};

use self::kernels::LoadedModules;
use self::matmul::MatmulCache;
use super::device::Device;
use super::op;
use super::tape::{Command, DeviceMatrix, DevicePtr, KernelArgument, Launch, Tape, TapeMatmul};

/// The maximum number of cached CUDA graphs.
const MAX_GRAPHS: usize = 32;

/// One device.
pub struct Cuda {
    context: sys::CUcontext,
    /// The compute capability, such as 90.
    compute_capability: i32,
    /// The maximum shared memory of a block, in bytes.
    shared: usize,
    stream: sys::CUstream,
    kernels: LoadedModules,
    matmuls: MatmulCache,
    staging: Staging,
    graphs: Vec<CachedTape>,
    /// Allocated memory that was not freed.
    allocations: HashSet<DevicePtr>,
}

/// A tape that was run before.
struct CachedTape {
    tape: Tape,
    graph: CaptureState,
}

/// The CUDA graph of a tape.
enum CaptureState {
    /// The tape was run once.
    NotCaptured,
    /// It was run twice and could not be captured: it is launched command by command.
    Uncapturable,
    /// It was captured.
    Captured(sys::CUgraphExec),
}

/// Pinned host memory, which the device reads directly.
struct Staging {
    place: *mut c_void,
    size: usize,
    /// Signaled when the last copy is done.
    copied: sys::CUevent,
}

/// Returns the error of a failed call.
fn failed(what: &str, error: impl std::fmt::Debug) -> Error {
    let error = format!("{error:?}");
    let message = format!("CUDA cannot {what}: {error}");
    match ["OUT_OF_MEMORY", "ALLOC_FAILED"].iter().any(|name| error.contains(name)) {
        true => Error::new(ErrorKind::Memory, "device", message),
        false => Error::unsupported("device", message),
    }
}

fn check<T, E: std::fmt::Debug>(what: &str, outcome: std::result::Result<T, E>) -> Result<T> {
    outcome.map_err(|error| failed(what, error))
}

/// Refuses machines that lack a library, since calls into a missing library abort the process.
fn need_libraries() -> Result<()> {
    // SAFETY: opens the libraries, whose initializers have no other side effects.
    let there = unsafe {
        [
            sys::is_culib_present(),
            cudarc::nvrtc::sys::is_culib_present(),
            cudarc::cublaslt::sys::is_culib_present(),
        ]
    };
    let advice = [
        "no CUDA driver: libcuda cannot be loaded; install NVIDIA's driver, or train with device = \"cpu\"",
        "no NVRTC: libnvrtc cannot be loaded; install the CUDA toolkit, or train with device = \"cpu\"",
        "no cuBLASLt: libcublasLt cannot be loaded; install the CUDA toolkit, or train with device = \"cpu\"",
    ];
    match there.iter().zip(advice).find(|(there, _)| !**there) {
        Some((_, advice)) => Err(Error::unsupported("device", advice)),
        None => Ok(()),
    }
}

/// Makes the context of a device current in this thread.
fn set_current(context: sys::CUcontext) -> Result<()> {
    // SAFETY: the context was returned by the driver, and is never released.
    check("set the current context", unsafe { driver::ctx::set_current(context) })
}

impl Cuda {
    /// Opens the device with this index, from 0.
    ///
    /// # Errors
    /// If there is no driver, no library or no such device, or its compute capability is too old for the kernels.
    pub fn new(number: usize) -> Result<Self> {
        need_libraries()?;
        check("start", driver::init())?;
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        let device = check(&format!("find device {number}"), driver::device::get(number))?;
        // SAFETY: the device was returned by the driver.
        let context = check("retain the primary context", unsafe { driver::primary_ctx::retain(device) })?;
        set_current(context)?;
        let of = |which| {
            // SAFETY: the device was returned by the driver.
            check("query the device", unsafe { driver::device::get_attribute(device, which) })
        };
        let major = of(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = of(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let shared = of(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        if major < 8 {
            let message = format!("device {number} is sm_{major}{minor}; the kernels need sm_80 or newer");
            return Err(Error::unsupported("device", message));
        }
        let stream =
            check("create a stream", driver::stream::create(driver::stream::StreamKind::NonBlocking))?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let copied = check("create an event", driver::event::create(flags))?;
        Ok(Self {
            context,
            compute_capability: 10 * major + minor,
            shared: usize::try_from(shared).unwrap_or(0),
            stream,
            kernels: LoadedModules::new(10 * major + minor),
            matmuls: MatmulCache::new()?,
            staging: Staging { place: std::ptr::null_mut(), size: 0, copied },
            graphs: Vec::new(),
            allocations: HashSet::new(),
        })
    }

    fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives as long as `self`.
        check("synchronize the stream", unsafe { driver::stream::synchronize(self.stream) })
    }

    /// Enqueues the commands of a tape on the stream.
    fn enqueue(&mut self, tape: &Tape) -> Result<()> {
        for command in &tape.commands {
            match command {
                Command::Launch(launch) => self.launch(launch)?,
                Command::Matmul(product) => self.multiply(product)?,
                Command::Clear { place, bytes } => {
                    // SAFETY: tapes are written for memory that was allocated here, with the sizes that they name.
                    let outcome = unsafe { driver::memset_d8_async(*place, 0, *bytes, self.stream) };
                    check("clear memory", outcome)?;
                }
            }
        }
        Ok(())
    }

    /// Enqueues a matmul; if cuBLASLt has no GELU epilogue for it, a kernel applies GELU afterwards.
    fn multiply(&mut self, product: &TapeMatmul) -> Result<()> {
        if product.pre_activation == 0 || self.matmuls.has(product) {
            return self.matmuls.multiply(product, self.stream);
        }
        let out = DeviceMatrix { ptr: product.pre_activation, ..product.out };
        self.matmuls.multiply(&TapeMatmul { out, pre_activation: 0, ..*product }, self.stream)?;
        self.enqueue(&op::gelu_kernel(product))
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        let function = self.kernels.function(&launch.kernel, launch.shared)?;
        // A kernel reads as many bytes as its parameter has: the first of each word.
        let mut words: Vec<u64> = launch
            .arguments
            .iter()
            .map(|argument| match *argument {
                KernelArgument::Ptr(place) => place,
                KernelArgument::Int(number) => u64::from(number as u32),
                KernelArgument::Long(number) => number as u64,
                KernelArgument::Float(number) => u64::from(number.to_bits()),
            })
            .collect();
        let mut places: Vec<*mut c_void> =
            words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
        let [x, y, z] = launch.grid;
        // SAFETY: the function is of a loaded module; tapes name kernels with the arguments of their sources, which
        // tests compare with the same list; memory was allocated here.
        let outcome = unsafe {
            let block = (launch.threads, 1, 1);
            driver::launch_kernel(function, (x, y, z), block, launch.shared, self.stream, &mut places)
        };
        check(&format!("launch {}", launch.kernel), outcome)
    }

    /// Captures the commands of a tape as a CUDA graph.
    fn capture(&mut self, tape: &Tape) -> Result<sys::CUgraphExec> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives; nothing synchronizes with it during the capture.
        check("record", unsafe { driver::stream::begin_capture(self.stream, mode) })?;
        let played = self.enqueue(tape);
        // SAFETY: the capture was begun above, and is ended whatever happened in between.
        let graph = check("record", unsafe { driver::stream::end_capture(self.stream) })?;
        let flags = sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        // SAFETY: the graph was just returned, and is not used after this.
        unsafe {
            let ready =
                played.and_then(|()| check("capture a graph", driver::graph::instantiate(graph, flags)));
            let _ = driver::graph::destroy(graph);
            ready
        }
    }

    /// Evicts the first `count` tapes.
    fn evict(&mut self, count: usize) -> Result<()> {
        let graph = |recorded: CachedTape| match recorded.graph {
            CaptureState::Captured(graph) => Some(graph),
            CaptureState::NotCaptured | CaptureState::Uncapturable => None,
        };
        let graphs: Vec<_> = self.graphs.drain(..count).filter_map(graph).collect();
        let mut outcome = if graphs.is_empty() { Ok(()) } else { self.synchronize() };
        for graph in graphs {
            // SAFETY: the graph was created here; all work that it launched is done, or the device is lost.
            let destroyed = check("destroy a graph", unsafe { driver::graph::exec_destroy(graph) });
            outcome = outcome.and(destroyed);
        }
        outcome
    }
}

impl Device for Cuda {
    fn allocate(&mut self, bytes: usize) -> Result<DevicePtr> {
        set_current(self.context)?;
        // SAFETY: tapes never read uninitialized memory.
        let outcome = unsafe { driver::malloc_sync(bytes.max(256)) };
        let place = outcome.map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let message = format!(
                    "cannot allocate {bytes} bytes; use a smaller batch.max_tokens, or set recompute"
                );
                Error::new(ErrorKind::Memory, "device", message)
            }
            _ => failed(&format!("allocate {bytes} bytes"), error),
        })?;
        self.allocations.insert(place);
        Ok(place)
    }

    fn free(&mut self, place: DevicePtr) -> Result<()> {
        set_current(self.context)?;
        // Captured graphs and pending work may refer to the memory.
        self.synchronize()?;
        self.evict(self.graphs.len())?;
        self.allocations.remove(&place);
        // SAFETY: the memory was allocated here, and no pending work refers to it.
        check("free memory", unsafe { driver::free_sync(place) })
    }

    fn write(&mut self, place: DevicePtr, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        set_current(self.context)?;
        let staging = &mut self.staging;
        // SAFETY: the staging memory is written only when the last copy from it is done, and is as long as `size`
        // says.
        unsafe {
            check("wait for a copy", driver::event::synchronize(staging.copied))?;
            if staging.size < bytes.len() {
                if staging.size > 0 {
                    check("free memory", driver::free_host(staging.place))?;
                    staging.size = 0;
                }
                let size = bytes.len().next_power_of_two();
                staging.place = check("pin memory", driver::malloc_host(size, 0))?;
                staging.size = size;
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), staging.place.cast(), bytes.len());
            let from = std::slice::from_raw_parts(staging.place.cast::<u8>(), bytes.len());
            check("copy to the device", driver::memcpy_htod_async(place, from, self.stream))?;
            check("copy to the device", driver::event::record(staging.copied, self.stream))
        }
    }

    fn read(&mut self, place: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        set_current(self.context)?;
        self.synchronize()?;
        // SAFETY: `bytes` is borrowed until the copy is done; the memory was allocated here.
        check("copy from the device", unsafe { driver::memcpy_dtoh_sync(bytes, place) })
    }

    fn free_bytes(&self) -> Result<Option<usize>> {
        set_current(self.context)?;
        let (free, _) = check("query its memory", driver::mem_get_info())?;
        Ok(Some(free))
    }

    fn workspace_bytes(&self) -> usize {
        matmul::WORKSPACE
    }

    fn shared_bytes(&self) -> usize {
        self.shared
    }

    fn has_fp8(&self) -> bool {
        self.compute_capability >= 89
    }

    fn run(&mut self, tape: &Tape) -> Result<()> {
        set_current(self.context)?;
        let known = self.graphs.iter().position(|recorded| recorded.tape == *tape);
        let Some(known) = known else {
            if self.graphs.len() == MAX_GRAPHS {
                self.evict(1)?;
            }
            self.graphs.push(CachedTape { tape: tape.clone(), graph: CaptureState::NotCaptured });
            return self.enqueue(tape);
        };
        // The first is the least recently used.
        self.graphs[known..].rotate_left(1);
        let last = self.graphs.len() - 1;
        if matches!(self.graphs[last].graph, CaptureState::NotCaptured) {
            // A failure that is not one of capturing occurs again in the launch, and is reported then.
            self.graphs[last].graph =
                self.capture(tape).map_or(CaptureState::Uncapturable, CaptureState::Captured);
        }
        let CaptureState::Captured(graph) = self.graphs[last].graph else { return self.enqueue(tape) };
        // SAFETY: the graph was created for this stream's device, from memory that is still allocated.
        check("launch a graph", unsafe { driver::graph::launch(graph, self.stream) })
    }

    fn run_uncaptured(&mut self, tape: &Tape) -> Result<()> {
        set_current(self.context)?;
        self.enqueue(tape)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // The process may be about to end, and the device with it.
        let _ = set_current(self.context);
        let _ = self.synchronize();
        let _ = self.evict(self.graphs.len());
        // SAFETY: all work is done, and nothing refers to these any more.
        unsafe {
            for place in self.allocations.drain() {
                let _ = driver::free_sync(place);
            }
            if self.staging.size > 0 {
                let _ = driver::free_host(self.staging.place);
            }
            let _ = driver::event::destroy(self.staging.copied);
            let _ = driver::stream::destroy(self.stream);
        }
    }
}
