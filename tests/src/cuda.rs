//! A device for tests: runs the sources of the CUDA kernels without a GPU. Matmuls, which cuBLAS computes on a real
//! device, are plain loops.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use half::{bf16, f16};
use siskin::{Error, Result};
use siskin_emulator::cuda::{self, CudaEmulator, LaunchConfig};
use siskin_trainer::cuda::{
    Command, Device, DeviceMatrix, Eight, Fp8Format, KernelArgument, Place, Precision, Tape, TapeMatmul,
};

use crate::paths;

/// The emulated device.
pub struct Emulated {
    machine: CudaEmulator,
}

/// Compiles `kernels/cuda/`, once per process, and returns the program, or `None` if there is no compiler.
///
/// # Panics
/// If they do not compile.
pub fn program(folder: &Path) -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        cuda::compile(&paths::root().join("kernels/cuda"), folder)
            .unwrap_or_else(|said| panic!("the kernels are no C++:\n{said}"))
    };
    PROGRAM.get_or_init(compile).as_deref()
}

impl Emulated {
    /// Starts an emulator that runs a program.
    ///
    /// # Panics
    /// If it does not start.
    pub fn new(program: &Path) -> Self {
        Self { machine: CudaEmulator::start(program).unwrap_or_else(|said| panic!("{said}")) }
    }

    /// Sets whether threads run from last to first.
    ///
    /// # Errors
    /// If the emulator has ended.
    pub fn run_backwards(&mut self, backwards: bool) -> Result<()> {
        said(self.machine.run_backwards(backwards))
    }

    fn table(
        &mut self,
        precision: Precision,
        matrix: DeviceMatrix,
        [rows, columns]: [usize; 2],
    ) -> Result<Vec<f32>> {
        let [rows, columns] = if matrix.turned { [columns, rows] } else { [rows, columns] };
        let count = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * matrix.stride + columns };
        let mut bytes = vec![0; count * precision.bytes()];
        said(self.machine.read(matrix.place, &mut bytes))?;
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
        let Some(Eight { range, inverse }) = own.eights.map(|eights| eights[which]) else {
            return self.table(own.precision, matrix, shape);
        };
        // fp8 matmuls require that the summed dimension is contiguous.
        if matrix.turned != (which == 1) || !matrix.stride.is_multiple_of(16) {
            return Err(Error::argument("emulated device", format!("{matrix:?} in fp8")));
        }
        let rows = shape[which];
        let mut bytes = vec![0; rows * matrix.stride];
        said(self.machine.read(matrix.place, &mut bytes))?;
        let mut scale = [0; 4];
        said(self.machine.read(inverse, &mut scale))?;
        Ok(bytes.into_iter().map(|byte| eight(range, byte) * f32::from_le_bytes(scale)).collect())
    }

    fn multiply(&mut self, product: &TapeMatmul) -> Result<()> {
        let [m, n, k] = product.shape;
        let own = Matrices { precision: product.precision, eights: product.eights };
        let a = self.factor(own, 0, product.a, [m, k])?;
        let b = self.factor(own, 1, product.b, [k, n])?;
        let kept = if product.floats { Precision::F32 } else { product.precision };
        let mut out = self.table(kept, product.out, [m, n])?;
        let bias = match product.bias {
            0 => vec![0.0; n],
            place => {
                self.table(product.precision, DeviceMatrix { place, stride: n, turned: false }, [1, n])?
            }
        };
        let at = |matrix: DeviceMatrix, row: usize, column: usize| match matrix.turned {
            true => column * matrix.stride + row,
            false => row * matrix.stride + column,
        };
        let mut before = vec![0.0; out.len()];
        let steps =
            |matrix: DeviceMatrix| if matrix.turned { [1, matrix.stride] } else { [matrix.stride, 1] };
        let sums = cuda::product(product.shape, (&a, steps(product.a)), (&b, steps(product.b)));
        for row in 0..m {
            for column in 0..n {
                let sum = sums[row * n + column];
                let place = at(product.out, row, column);
                let was = if product.add { out[place] } else { 0.0 };
                before[place] = was + sum + bias[column];
                out[place] = if product.before > 0 { gelu(before[place]) } else { before[place] };
            }
        }
        // The gaps between rows are not written.
        for row in 0..m {
            let start = row * product.out.stride;
            for (base, numbers) in [(product.out.place, &out), (product.before, &before)] {
                if base > 0 {
                    let place = base + (start * kept.bytes()) as Place;
                    said(self.machine.write(place, &encode(kept, &numbers[start..start + n])))?;
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

fn said<T>(outcome: std::result::Result<T, String>) -> Result<T> {
    outcome.map_err(|message| Error::argument("emulated device", message))
}

impl Device for Emulated {
    fn allocate(&mut self, bytes: usize) -> Result<Place> {
        // The allocation ends at an inaccessible page and begins where a real device would begin it.
        said(self.machine.allocate(bytes.next_multiple_of(256)))
    }

    fn free(&mut self, _: Place) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, place: Place, bytes: &[u8]) -> Result<()> {
        said(self.machine.write(place, bytes))
    }

    fn read(&mut self, place: Place, bytes: &mut [u8]) -> Result<()> {
        said(self.machine.read(place, bytes))
    }

    fn is_timed(&self) -> bool {
        false
    }

    fn run(&mut self, tape: &Tape) -> Result<()> {
        for command in &tape.commands {
            match command {
                Command::Multiply(product) => self.multiply(product)?,
                Command::Clear { place, bytes } => said(self.machine.fill(*place, 0, *bytes))?,
                Command::Launch(launch) => {
                    let shape =
                        LaunchConfig { grid: launch.grid, threads: launch.threads, shared: launch.shared };
                    let arguments: Vec<cuda::EmulatedArgument> =
                        launch.arguments.iter().map(as_word).collect();
                    said(self.machine.launch(&launch.kernel, shape, &arguments))?;
                }
            }
        }
        Ok(())
    }
}

fn as_word(argument: &KernelArgument) -> cuda::EmulatedArgument {
    match *argument {
        KernelArgument::Place(place) => cuda::EmulatedArgument::Place(place),
        KernelArgument::Whole(number) => cuda::EmulatedArgument::Whole(i64::from(number)),
        KernelArgument::Long(number) => cuda::EmulatedArgument::Whole(number),
        KernelArgument::Float(number) => cuda::EmulatedArgument::Float(number),
    }
}

/// The types of a matmul's operands.
#[derive(Clone, Copy)]
struct Matrices {
    precision: Precision,
    eights: Option<[Eight; 2]>,
}

/// Decodes an fp8 byte.
pub fn eight(range: Fp8Format, byte: u8) -> f32 {
    let (digits, bias) = match range {
        Fp8Format::Near => (3, 7),
        Fp8Format::Far => (2, 15),
    };
    let (exponent, rest) = (i32::from(byte & 0x7f) >> digits, f32::from(byte & ((1 << digits) - 1)));
    let one = f32::from(1_u8 << digits);
    let size = match (exponent, range) {
        (15, Fp8Format::Near) if byte & 7 == 7 => f32::NAN,
        (31, Fp8Format::Far) => f32::NAN,
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
