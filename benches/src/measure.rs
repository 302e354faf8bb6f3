//! Random matmul operands, and timing of several threads.

use crate::random::BenchRandom;
use siskin_kernels::ops::matmul::{Input, MatmulOperands, Output};
use siskin_kernels::ops::quantize::{self, QuantizedRowLayout};
use siskin_kernels::ops::{Kernels, peak};
use siskin_kernels::panel::{self, InputKind, PanelType, ROWS};
use siskin_kernels::quant::BlockType;
use siskin_kernels::quant::row::RowType;
use std::hint::black_box;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A buffer aligned to a cache line, as in the runtime: tiles and vectors that cross two cache lines take twice as
/// long.
pub struct AlignedLines<T> {
    numbers: Vec<T>,
    start: usize,
    count: usize,
}

impl<T: Copy + Default> AlignedLines<T> {
    /// Returns a zeroed buffer.
    pub fn new(count: usize) -> Self {
        let numbers = vec![T::default(); count + LINE / size_of::<T>()];
        let start = numbers.as_ptr().align_offset(LINE);
        Self { numbers, start, count }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

impl<T> Deref for AlignedLines<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.numbers[self.start..][..self.count]
    }
}

impl<T> DerefMut for AlignedLines<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.numbers[self.start..][..self.count]
    }
}

/// Returns random values from −1 to 1.
pub fn vector(length: usize, random: &mut BenchRandom) -> Vec<f32> {
    (0..length).map(|_| (random.below(2001) as f32 - 1000.0) / 1000.0).collect()
}

/// Quantizes rows of `columns` for panels of type `panel`, concatenated.
pub fn quantized(kernels: &Kernels, panel: PanelType, x: &[f32], columns: usize) -> AlignedLines<i32> {
    let row = QuantizedRowLayout::new(columns).words();
    let mut words = AlignedLines::new(x.len() / columns * row);
    for (x, words) in x.chunks(columns).zip(words.chunks_mut(row)) {
        quantizer(kernels, panel)(x, words);
    }
    words
}

fn quantizer(kernels: &Kernels, panel: PanelType) -> quantize::Function {
    if panel.is_row() { kernels.quantize_rotated() } else { kernels.quantize() }
}

/// A packed matrix of random values.
pub struct PackedMatrix {
    /// The panel type.
    pub panel: PanelType,
    /// The panels.
    pub weights: AlignedLines<u8>,
    /// The number of rows, a multiple of the panel height.
    pub outputs: usize,
    /// The number of columns.
    pub columns: usize,
}

impl PackedMatrix {
    /// Creates a matrix in panels of type `panel`.
    ///
    /// # Panics
    /// If the rows are not whole panels or the columns are not whole blocks.
    pub fn new(panel: PanelType, outputs: usize, columns: usize, random: &mut BenchRandom) -> Self {
        assert!(outputs.is_multiple_of(ROWS), "rows that are no whole panels");
        let Some(block) = BlockType::ALL.iter().copied().find(|&block| PanelType::for_block(block) == panel)
        else {
            return Self::of_rows(panel, outputs, columns, random);
        };
        let sizes = block.row_bytes(columns).zip(panel.panel_bytes(columns));
        let (row_bytes, panel_bytes) = sizes.expect("whole blocks of columns");
        let mut weights = AlignedLines::new(panel_bytes * outputs / ROWS);
        for panel in weights.chunks_mut(panel_bytes) {
            let mut row = || {
                let mut row = vec![0; row_bytes];
                if !block.quantize_row(&vector(columns, random), None, &mut row) {
                    row.iter_mut().for_each(|byte| *byte = (random.bits() & 0x37) as u8);
                }
                row
            };
            let rows: Vec<Vec<u8>> = (0..ROWS).map(|_| row()).collect();
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            assert!(panel::pack(block, &rows, columns, panel), "rows that cannot be packed");
        }
        Self { panel, weights, outputs, columns }
    }

    /// Creates a matrix of a row type.
    fn of_rows(panel: PanelType, outputs: usize, columns: usize, random: &mut BenchRandom) -> Self {
        let ty = RowType::ALL.iter().copied().find(|ty| ty.panel() == panel).expect("a row type");
        let sizes = ty.row_bytes(columns).zip(panel.panel_bytes(columns));
        let (row_bytes, panel_bytes) = sizes.expect("whole blocks of columns");
        let mut weights = AlignedLines::new(panel_bytes * outputs / ROWS);
        for panel in weights.chunks_mut(panel_bytes) {
            // The encoder's search is slow: a panel repeats one row sixteen times.
            let mut row = vec![0; row_bytes];
            assert!(ty.encode(&vector(columns, random), None, &mut row), "a row that cannot be encoded");
            assert!(panel::pack_rows(ty, &[&row[..]; ROWS], columns, panel), "rows that cannot be packed");
        }
        Self { panel, weights, outputs, columns }
    }

    /// Returns the input that the matrix takes: f32 rows, or the words that [`quantized`] returned.
    pub fn input<'a>(&self, x: &'a [f32], words: &'a [i32]) -> Input<'a> {
        match self.panel.input() {
            InputKind::Float => Input::Float { rows: x, stride: self.columns },
            InputKind::Quantized => Input::Quantized(words),
            InputKind::Rotated => Input::Rotated(words),
        }
    }

    fn product<'a>(&'a self, input: Input<'a>) -> MatmulOperands<'a> {
        let (outputs, columns) = (self.outputs, self.columns);
        MatmulOperands { panel: self.panel, weights: &self.weights, outputs, columns, bias: &[], input }
    }

    /// Multiplies the first `rows` rows of `input` by the matrix, in one call.
    ///
    /// # Panics
    /// If `out` or the input is too short.
    pub fn multiply(&self, kernels: &Kernels, input: Input<'_>, rows: usize, out: &mut [f32]) {
        assert!(rows * self.outputs <= out.len(), "a table too short for the product");
        let product = self.product(input);
        // SAFETY: the table has the product's size, and `out` is borrowed for this call alone.
        let to = unsafe { Output::new(out.as_mut_ptr(), rows, self.outputs, self.outputs) };
        kernels.matmul()(&product, 0..rows, 0..product.panels(), to);
    }
}

/// Rows that several threads multiply by an integer matrix, in chunks of the same form as the runtime's.
pub struct SharedRows<'a> {
    kernels: Kernels,
    matrix: &'a PackedMatrix,
    x: &'a [f32],
    words: AlignedLines<i32>,
    out: AlignedLines<f32>,
}

impl<'a> SharedRows<'a> {
    /// Rows per chunk.
    const PIECE_ROWS: usize = 128;

    /// Creates the work for the rows of `x` and the matrix.
    pub fn new(kernels: Kernels, matrix: &'a PackedMatrix, x: &'a [f32]) -> Self {
        let words = quantized(&kernels, matrix.panel, x, matrix.columns);
        let out = AlignedLines::new(x.len() / matrix.columns * matrix.outputs);
        Self { kernels, matrix, x, words, out }
    }

    /// Returns the time of a matmul in seconds, including quantization of the rows if `whole` is set.
    pub fn seconds(&mut self, threads: usize, whole: bool, patience: Duration) -> f64 {
        let Self { kernels, matrix, x, .. } = *self;
        let (columns, outputs) = (matrix.columns, matrix.outputs);
        let (rows, row_words) = (x.len() / columns, QuantizedRowLayout::new(columns).words());
        let words = Address(self.words.as_mut_ptr());
        let out = Address(self.out.as_mut_ptr());
        let panels = outputs / ROWS;
        let blocks = rows.div_ceil(Self::PIECE_ROWS);
        let run = (panels * blocks / (threads * 8)).next_multiple_of(4).clamp(4, 64);
        let runs = panels.div_ceil(run);
        let quantize = |row: usize| {
            // SAFETY: each row is its own chunk, and the words are not read in this phase.
            let words = unsafe { std::slice::from_raw_parts_mut(words.at(row * row_words), row_words) };
            quantizer(&kernels, matrix.panel)(&x[row * columns..][..columns], words);
        };
        let multiply = |piece: usize| {
            let (block, at) = (piece / runs, piece % runs);
            let rows_here = block * Self::PIECE_ROWS..rows.min((block + 1) * Self::PIECE_ROWS);
            let panels_here = at * run..panels.min((at + 1) * run);
            // SAFETY: the words are not written in this phase; each chunk is its own part of the table.
            let (words, to) = unsafe {
                let words = std::slice::from_raw_parts(words.at(0).cast_const(), rows * row_words);
                (words, Output::new(out.at(0), rows, outputs, outputs))
            };
            kernels.matmul()(&matrix.product(matrix.input(x, words)), rows_here, panels_here, to);
        };
        let phases: [Phase<'_>; 2] = [(0..rows, &quantize), (0..runs * blocks, &multiply)];
        time_together(threads, if whole { &phases } else { &phases[1..] }, patience)
    }
}

/// A pointer to data that the phases divide among threads.
struct Address<T>(*mut T);

impl<T> Address<T> {
    fn at(&self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

// SAFETY: every use of the address states why no other thread accesses the same element.
unsafe impl<T> Sync for Address<T> {}

/// Chunks that may run in parallel, and the function that runs one.
pub type Phase<'a> = (Range<usize>, &'a (dyn Fn(usize) + Sync));

/// Returns the time of a run of the phases in seconds: one after the other, on `threads` threads that take chunks from
/// a shared counter. The result is the 5th percentile of many runs. Interference mostly makes runs longer, but a clock
/// can err in both directions.
///
/// # Panics
/// If chunks were left out.
pub fn time_together(threads: usize, phases: &[Phase<'_>], patience: Duration) -> f64 {
    let (ended, arrived, done) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let counters: Vec<_> = phases.iter().map(|_| AtomicUsize::new(0)).collect();
    let meet = |target: &mut usize| {
        *target += threads;
        arrived.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0_usize;
        while arrived.load(Ordering::Acquire) < *target {
            spins += 1;
            if spins.is_multiple_of(1 << 14) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    };
    let work = |target: &mut usize| {
        let mut pieces_done = 0;
        for ((pieces, piece), counter) in phases.iter().zip(&counters) {
            loop {
                let next = pieces.start + counter.fetch_add(1, Ordering::Relaxed);
                if next >= pieces.end {
                    break;
                }
                piece(next);
                pieces_done += 1;
            }
            meet(target);
        }
        pieces_done
    };
    let member = || {
        let (mut target, mut pieces_done) = (0, 0);
        loop {
            meet(&mut target);
            if ended.load(Ordering::Acquire) {
                done.fetch_add(pieces_done, Ordering::Relaxed);
                return;
            }
            pieces_done += work(&mut target);
        }
    };
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(member)));
        let (start, mut target, mut pieces_done) = (Instant::now(), 0, 0);
        while times.len() < 3 || start.elapsed() < patience {
            counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
            // After the barrier, other threads may finish before this one runs again: the clock starts before it.
            let begun = Instant::now();
            meet(&mut target);
            pieces_done += work(&mut target);
            times.push(begun.elapsed().as_secs_f64());
        }
        done.fetch_add(pieces_done, Ordering::Relaxed);
        ended.store(true, Ordering::Release);
        meet(&mut target);
    });
    let pieces: usize = phases.iter().map(|(pieces, _)| pieces.len()).sum();
    assert_eq!(done.into_inner(), pieces * times.len(), "pieces done");
    times.sort_by(f64::total_cmp);
    times[times.len() / 20]
}

/// Returns the rate at which `threads` threads repeatedly read a buffer of `bytes` bytes, in bytes per second.
pub fn read_rate(kernels: &Kernels, threads: usize, bytes: usize, patience: Duration) -> f64 {
    let numbers = vec![1.0_f32; bytes / 4];
    let parts: Vec<_> = numbers.chunks(numbers.len().div_ceil(threads).max(1)).collect();
    let reads = peak::reads_for_cpu(kernels.cpu());
    let read = |part: usize| reads(parts[part], black_box(&mut [0.0; 16]));
    bytes as f64 / time_together(threads, &[(0..parts.len(), &read)], patience)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siskin_kernels::Cpu;

    #[test]
    fn threads_together_give_the_product_of_one_call() {
        let kernels = Kernels::for_cpu(Cpu::detect());
        let mut random = BenchRandom::new(7);
        let matrix = PackedMatrix::new(PanelType::Q8, 160, 128, &mut random);
        let x = vector(37 * 128, &mut random);
        let mut want = vec![0.0; 37 * 160];
        let words = quantized(&kernels, PanelType::Q8, &x, 128);
        matrix.multiply(&kernels, Input::Quantized(&words), 37, &mut want);
        for (threads, whole) in [(1, false), (3, true)] {
            let mut shared = SharedRows::new(kernels, &matrix, &x);
            assert!(shared.seconds(threads, whole, Duration::ZERO) > 0.0);
            assert_eq!(shared.out[..], want);
        }
    }

    #[test]
    fn threads_that_come_late_do_not_shorten_the_time() {
        let piece = |_| std::thread::sleep(Duration::from_millis(2));
        let phases: [Phase<'_>; 2] = [(0..16, &piece), (3..4, &piece)];
        let seconds = time_together(8, &phases, Duration::from_millis(40));
        assert!((0.006..0.1).contains(&seconds), "{seconds}");
    }
}
