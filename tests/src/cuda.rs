//! A device for tests: an emulator that runs the sources of the CUDA kernels without a GPU, or, with the feature `cuda`
//! and `SISKIN_TEST_DEVICE=cuda`, the first GPU. With `SISKIN_TEST_DEVICE=checked` or `SISKIN_TEST_ALL=1`, the emulator checks every access. On the emulator, matmuls, which cuBLASLt computes on a GPU, are plain
//! loops.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use half::{bf16, f16};
use siskin::{Error, Result};
use siskin_device::{
    Command, CommandList, Device, DeviceCapabilities, DeviceMatrix, DevicePtr, Fp8Format, Fp8Operand,
    Fp8Operands, GemmShape, KernelArgument, MatmulCommand, Precision,
};
use siskin_emulator::cuda::{self, Checks, CudaEmulator, ExecutionMode, LaunchConfig};

use crate::{env, paths};

/// The device that tests run on.
pub enum TestDevice {
    /// An emulator on the CPU.
    Emulated(Emulated),
    /// A GPU.
    #[cfg(feature = "cuda")]
    Gpu(Box<siskin_cuda::CudaDevice>),
}

impl TestDevice {
    /// Opens the GPU if `SISKIN_TEST_DEVICE` is `cuda`, and else starts an emulator, whose program is compiled in
    /// `folder`. Returns `None`, and says so, if the emulator cannot be compiled.
    ///
    /// # Panics
    /// If the GPU cannot be used, or the emulator does not start.
    pub fn open(folder: &Path) -> Option<Self> {
        let checks = match env::test_device() {
            Some(name) if name == "checked" => Checks::Accesses,
            None if env::test_all() => Checks::Accesses,
            None => Checks::Standard,
            Some(name) => {
                assert_eq!(name, "cuda", "SISKIN_TEST_DEVICE: expected \"cuda\" or \"checked\"");
                return Some(Self::gpu());
            }
        };
        let program = program(folder, checks);
        if program.is_none() {
            eprintln!("skipped: no C++ compiler for 64-bit Linux");
        }
        program.map(|program| Self::Emulated(Emulated::new(program)))
    }

    #[cfg(feature = "cuda")]
    fn gpu() -> Self {
        let gpu = siskin_cuda::CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
        Self::Gpu(Box::new(gpu))
    }

    #[cfg(not(feature = "cuda"))]
    fn gpu() -> Self {
        panic!("these tests were built without the feature `cuda`")
    }

    /// Sets how the emulator runs the following commands. A GPU has no fixed mode.
    ///
    /// # Errors
    /// If the emulator has ended.
    pub fn set_mode(&mut self, mode: ExecutionMode) -> Result<()> {
        match self {
            Self::Emulated(emulated) => emulated.set_mode(mode),
            #[cfg(feature = "cuda")]
            Self::Gpu(_) => Ok(()),
        }
    }

    fn device(&self) -> &dyn Device {
        match self {
            Self::Emulated(device) => device,
            #[cfg(feature = "cuda")]
            Self::Gpu(device) => device.as_ref(),
        }
    }

    fn device_mut(&mut self) -> &mut dyn Device {
        match self {
            Self::Emulated(device) => device,
            #[cfg(feature = "cuda")]
            Self::Gpu(device) => device.as_mut(),
        }
    }
}

impl Device for TestDevice {
    fn capabilities(&self) -> DeviceCapabilities {
        self.device().capabilities()
    }

    fn allocate(&mut self, bytes: usize) -> Result<DevicePtr> {
        self.device_mut().allocate(bytes)
    }

    fn free(&mut self, place: DevicePtr) -> Result<()> {
        self.device_mut().free(place)
    }

    fn write(&mut self, place: DevicePtr, bytes: &[u8]) -> Result<()> {
        self.device_mut().write(place, bytes)
    }

    fn read(&mut self, place: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        self.device_mut().read(place, bytes)
    }

    fn free_bytes(&self) -> Result<Option<usize>> {
        self.device().free_bytes()
    }

    fn run(&mut self, commands: &CommandList) -> Result<()> {
        self.device_mut().run(commands)
    }

    fn run_uncaptured(&mut self, commands: &CommandList) -> Result<()> {
        self.device_mut().run_uncaptured(commands)
    }
}

/// The emulated device.
pub struct Emulated {
    emulator: CudaEmulator,
}

/// Compiles `runtime/cuda/kernels/`, once per process, and returns the program, or `None` if there is no compiler.
fn program(folder: &Path, checks: Checks) -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        cuda::compile(&paths::root().join("runtime/cuda/kernels"), folder, checks)
            .unwrap_or_else(|error| panic!("the kernels do not compile as C++:\n{error}"))
    };
    PROGRAM.get_or_init(compile).as_deref()
}

impl Emulated {
    /// Starts an emulator that runs a program.
    ///
    /// # Panics
    /// If it does not start.
    pub fn new(program: &Path) -> Self {
        Self { emulator: CudaEmulator::start(program).unwrap_or_else(|error| panic!("{error}")) }
    }

    /// Sets how the following commands run.
    ///
    /// # Errors
    /// If the emulator has ended.
    pub fn set_mode(&mut self, mode: ExecutionMode) -> Result<()> {
        emulated(self.emulator.set_mode(mode))
    }

    fn table(
        &mut self,
        precision: Precision,
        matrix: DeviceMatrix,
        [rows, columns]: [usize; 2],
    ) -> Result<Vec<f32>> {
        let [rows, columns] = if matrix.transposed { [columns, rows] } else { [rows, columns] };
        let count = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * matrix.stride + columns };
        let mut bytes = vec![0; count * precision.bytes()];
        emulated(self.emulator.read(matrix.ptr, &mut bytes))?;
        Ok(decode(precision, &bytes))
    }

    /// Returns an operand of a matmul, which may be fp8.
    fn factor(
        &mut self,
        own: Matrices,
        which: usize,
        matrix: DeviceMatrix,
        shape: [usize; 2],
    ) -> Result<Vec<f32>> {
        let Some(Fp8Operand { format: range, inverse_scale: inverse }) =
            own.fp8.map(|fp8| if which == 0 { fp8.a } else { fp8.b })
        else {
            return self.table(own.precision, matrix, shape);
        };
        // fp8 matmuls require that the summed dimension is contiguous, and that scales are aligned to 16 bytes.
        if matrix.transposed != (which == 1) || !matrix.stride.is_multiple_of(16) {
            return Err(Error::argument("emulated device", format!("{matrix:?} in fp8")));
        }
        if !inverse.is_multiple_of(16) {
            return Err(Error::argument("emulated device", format!("a scale at {inverse:#x}")));
        }
        let rows = shape[which];
        let mut bytes = vec![0; rows * matrix.stride];
        emulated(self.emulator.read(matrix.ptr, &mut bytes))?;
        let mut scale = [0; 4];
        emulated(self.emulator.read(inverse, &mut scale))?;
        Ok(bytes.into_iter().map(|byte| decode_fp8(range, byte) * f32::from_le_bytes(scale)).collect())
    }

    fn multiply(&mut self, product: &MatmulCommand) -> Result<()> {
        let GemmShape { m, n, k } = product.shape;
        let own = Matrices { precision: product.precision, fp8: product.fp8 };
        let a = self.factor(own, 0, product.a, [m, k])?;
        let b = self.factor(own, 1, product.b, [k, n])?;
        let kept = if product.f32_output { Precision::F32 } else { product.precision };
        let mut out = self.table(kept, product.out, [m, n])?;
        let bias = match product.bias {
            0 => vec![0.0; n],
            place => self.table(
                product.precision,
                DeviceMatrix { ptr: place, stride: n, transposed: false },
                [1, n],
            )?,
        };
        let at = |matrix: DeviceMatrix, row: usize, column: usize| match matrix.transposed {
            true => column * matrix.stride + row,
            false => row * matrix.stride + column,
        };
        let mut before = vec![0.0; out.len()];
        let steps =
            |matrix: DeviceMatrix| if matrix.transposed { [1, matrix.stride] } else { [matrix.stride, 1] };
        let sums = cuda::matmul([m, n, k], (&a, steps(product.a)), (&b, steps(product.b)));
        for row in 0..m {
            for column in 0..n {
                let sum = sums[row * n + column];
                let place = at(product.out, row, column);
                let was = if product.accumulate { out[place] } else { 0.0 };
                before[place] = was + sum + bias[column];
                out[place] = if product.pre_activation > 0 { gelu(before[place]) } else { before[place] };
            }
        }
        // The gaps between rows are not written.
        for row in 0..m {
            let start = row * product.out.stride;
            for (base, numbers) in [(product.out.ptr, &out), (product.pre_activation, &before)] {
                if base > 0 {
                    let place = base + (start * kept.bytes()) as DevicePtr;
                    emulated(self.emulator.write(place, &encode(kept, &numbers[start..start + n])))?;
                }
            }
        }
        Ok(())
    }
}

/// GELU with tanh approximation, as in cuBLASLt.
fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    (0.5 * x * (1.0 + inner.tanh())) as f32
}

fn emulated<T>(outcome: std::result::Result<T, String>) -> Result<T> {
    outcome.map_err(|message| Error::argument("emulated device", message))
}

impl Device for Emulated {
    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities { timed: false, ..DeviceCapabilities::default() }
    }

    fn allocate(&mut self, bytes: usize) -> Result<DevicePtr> {
        // The allocation ends at an inaccessible page and begins where a real device would begin it.
        emulated(self.emulator.allocate(bytes.next_multiple_of(256)))
    }

    fn free(&mut self, _: DevicePtr) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, place: DevicePtr, bytes: &[u8]) -> Result<()> {
        emulated(self.emulator.write(place, bytes))
    }

    fn read(&mut self, place: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        emulated(self.emulator.read(place, bytes))
    }

    fn run(&mut self, commands: &CommandList) -> Result<()> {
        for command in commands.iter() {
            match command {
                Command::Matmul(product) => self.multiply(product)?,
                Command::Clear { ptr, bytes } => emulated(self.emulator.fill(*ptr, 0, *bytes))?,
                Command::Launch(launch) => {
                    let shape = LaunchConfig {
                        grid: [launch.grid.x, launch.grid.y, launch.grid.z],
                        threads: launch.threads,
                        shared: launch.shared,
                    };
                    let arguments: Vec<cuda::EmulatedArgument> =
                        launch.arguments.iter().map(as_word).collect();
                    emulated(self.emulator.launch(&launch.kernel, shape, &arguments))?;
                }
            }
        }
        Ok(())
    }
}

fn as_word(argument: &KernelArgument) -> cuda::EmulatedArgument {
    match *argument {
        KernelArgument::Ptr(place) => cuda::EmulatedArgument::Ptr(place),
        KernelArgument::Int(number) => cuda::EmulatedArgument::Int(i64::from(number)),
        KernelArgument::Long(number) => cuda::EmulatedArgument::Int(number),
        KernelArgument::Float(number) => cuda::EmulatedArgument::Float(number),
    }
}

/// The types of a matmul's operands.
#[derive(Clone, Copy)]
struct Matrices {
    precision: Precision,
    fp8: Option<Fp8Operands>,
}

/// Decodes an fp8 byte.
pub fn decode_fp8(format: Fp8Format, byte: u8) -> f32 {
    let (digits, bias) = match format {
        Fp8Format::E4M3 => (3, 7),
        Fp8Format::E5M2 => (2, 15),
    };
    let (exponent, rest) = (i32::from(byte & 0x7f) >> digits, f32::from(byte & ((1 << digits) - 1)));
    let one = f32::from(1_u8 << digits);
    let size = match (exponent, format) {
        (15, Fp8Format::E4M3) if byte & 7 == 7 => f32::NAN,
        (31, Fp8Format::E5M2) => f32::NAN,
        (0, _) => rest / one * 2.0_f32.powi(1 - bias),
        _ => (1.0 + rest / one) * 2.0_f32.powi(exponent - bias),
    };
    if byte & 0x80 == 0 { size } else { -size }
}

/// Encodes values in a precision.
pub fn encode(precision: Precision, numbers: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(numbers.len() * precision.bytes());
    for number in numbers {
        match precision {
            Precision::F32 => bytes.extend_from_slice(&number.to_le_bytes()),
            Precision::Bf16 => bytes.extend_from_slice(&bf16::from_f32(*number).to_le_bytes()),
            Precision::Fp16 => bytes.extend_from_slice(&f16::from_f32(*number).to_le_bytes()),
        }
    }
    bytes
}

/// Decodes values of a precision.
pub fn decode(precision: Precision, bytes: &[u8]) -> Vec<f32> {
    let number = |bytes: &[u8]| match precision {
        Precision::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        Precision::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        Precision::Fp16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
    };
    bytes.chunks_exact(precision.bytes()).map(number).collect()
}
