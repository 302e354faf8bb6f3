use crate::common::{TestRandom, bits, tables};
use siskin_kernels::Cpu;
use siskin_kernels::hadamard;
use siskin_kernels::ops::Kernels;
use siskin_kernels::ops::matmul::{Input, MatmulOperands, Output, reference};
use siskin_kernels::ops::quantize::{self, QuantizedRowLayout};
use siskin_kernels::panel::{self, InputKind, PanelType, ROWS};
use siskin_kernels::quant::BlockType;
use siskin_kernels::quant::row::RowType;

type Encode<'a> = dyn Fn(&[f32], &mut TestRandom) -> Vec<u8> + 'a;
type Pack<'a> = dyn Fn(&[&[u8]], &mut [u8]) -> bool + 'a;

/// A packed matrix of random blocks with its inputs.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) panel: PanelType,
    pub(crate) weights: Vec<u8>,
    pub(crate) outputs: usize,
    pub(crate) columns: usize,
    bias: Vec<f32>,
    words: Vec<i32>,
    rows: Vec<f32>,
}

impl Case {
    pub(crate) fn new(
        block: BlockType,
        outputs: usize,
        columns: usize,
        rows: usize,
        random: &mut TestRandom,
    ) -> Self {
        let row_bytes = block.row_bytes(columns).unwrap_or_else(|| {
            panic!("{columns} columns are not whole blocks of {}", block.name());
        });
        let encode = |values: &[f32], random: &mut TestRandom| {
            let mut row = vec![0; row_bytes];
            if !block.quantize_row(values, None, &mut row) {
                row.iter_mut().for_each(|byte| *byte = (random.bits() & 0x37) as u8);
            }
            row
        };
        let pack = |rows: &[&[u8]], out: &mut [u8]| panel::pack(block, rows, columns, out);
        Self::packed(PanelType::for_block(block), outputs, columns, rows, random, &encode, &pack)
    }

    pub(crate) fn of_rows(
        ty: RowType,
        outputs: usize,
        columns: usize,
        rows: usize,
        random: &mut TestRandom,
    ) -> Self {
        let encode = |values: &[f32], _: &mut TestRandom| {
            let mut rotated = values.to_vec();
            rotated.resize(columns.next_multiple_of(64), 0.0);
            hadamard::rotate(&mut rotated);
            let mut row = vec![0; ty.row_bytes(columns).unwrap()];
            assert!(ty.encode(&rotated, None, &mut row));
            row
        };
        let pack = |rows: &[&[u8]], out: &mut [u8]| panel::pack_rows(ty, rows, columns, out);
        Self::packed(ty.panel(), outputs, columns, rows, random, &encode, &pack)
    }

    fn packed(
        panel: PanelType,
        outputs: usize,
        columns: usize,
        rows: usize,
        random: &mut TestRandom,
        encode: &Encode<'_>,
        pack: &Pack<'_>,
    ) -> Self {
        let matrix: Vec<Vec<u8>> = (0..outputs)
            .map(|_| {
                let values = random.vector(columns, 0.5);
                encode(&values, random)
            })
            .collect();
        let panel_bytes = panel.panel_bytes(columns).unwrap();
        let mut weights = vec![0xff; panel_bytes * outputs.div_ceil(ROWS)];
        for (rows, out) in matrix.chunks(ROWS).zip(weights.chunks_mut(panel_bytes)) {
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            assert!(pack(&rows, out));
        }
        let x = random.vector(rows * columns, 3.0);
        let layout = QuantizedRowLayout::new(columns);
        let mut words = vec![0; rows * layout.words()];
        for (x, words) in x.chunks(columns).zip(words.chunks_mut(layout.words())) {
            if panel.is_row() { quantize::reference_rotated(x, words) } else { quantize::reference(x, words) }
        }
        Self { panel, weights, outputs, columns, bias: random.vector(outputs, 1.0), words, rows: x }
    }

    fn product(&self) -> MatmulOperands<'_> {
        let input = match self.panel.input() {
            InputKind::Float => Input::Float { rows: &self.rows, stride: self.columns },
            InputKind::Quantized => Input::Quantized(&self.words),
            InputKind::Rotated => Input::Rotated(&self.words),
        };
        MatmulOperands {
            panel: self.panel,
            weights: &self.weights,
            outputs: self.outputs,
            columns: self.columns,
            bias: &self.bias,
            input,
        }
    }

    /// Computes the whole matmul with the kernel of `table`.
    pub(crate) fn run(&self, table: &Kernels) -> Vec<f32> {
        let rows = self.rows.len() / self.columns;
        let product = self.product();
        let mut got = vec![f32::NAN; rows * self.outputs];
        // SAFETY: the output has the given size and is used by this call alone.
        let out = unsafe { Output::new(got.as_mut_ptr(), rows, self.outputs, self.outputs) };
        table.matmul()(&product, 0..rows, 0..product.panels(), out);
        got
    }
}

#[test]
fn every_kernel_gives_the_reference_bits_for_every_type() {
    let mut random = TestRandom::new(9);
    for &block in BlockType::ALL {
        let sizes: &[usize] = match block.codec().elements {
            1 => &[1, 64, 97, 300],
            256 => &[256, 768, 1280],
            32 => &[32, 96, 576],
            other => panic!("{}: add columns that are whole blocks of {other}", block.name()),
        };
        for &columns in sizes {
            for (outputs, rows) in SHAPES {
                let case = Case::new(block, outputs, columns, rows, &mut random);
                check(&case, rows, block.name());
            }
        }
    }
    for &ty in RowType::ALL {
        for columns in [1, 64, 97, 576] {
            for (outputs, rows) in SHAPES {
                check(&Case::of_rows(ty, outputs, columns, rows, &mut random), rows, ty.name());
            }
        }
    }
}

/// Outputs and rows of each case.
const SHAPES: [(usize, usize); 6] = [(1, 1), (16, 2), (40, 3), (80, 1), (35, 9), (70, 43)];

/// Compares every kernel with the reference.
fn check(case: &Case, rows: usize, name: &str) {
    check_rows(case, &Vec::from_iter(0..rows), name);
}

/// Compares some rows of every kernel's output with the reference.
fn check_rows(case: &Case, rows: &[usize], name: &str) {
    let (product, outputs, columns) = (case.product(), case.outputs, case.columns);
    let mut scratch = vec![0.0; columns];
    let mut want = |&row| -> Vec<f32> {
        (0..outputs).map(|output| reference(&product, row, output, &mut scratch)).collect()
    };
    let want: Vec<Vec<f32>> = rows.iter().map(&mut want).collect();
    for table in tables() {
        let (isa, got) = (table.cpu().features(), case.run(&table));
        for (row, want) in rows.iter().zip(&want) {
            let got = &got[row * outputs..][..outputs];
            assert!(bits(got) == bits(want), "{name} row {row}, {columns}×{outputs} on {isa}");
        }
    }
}

/// Each number of rows is divided into other tiles, for each number of panels with another remainder.
#[test]
fn tiles_of_all_shapes_give_the_reference_bits() {
    let mut random = TestRandom::new(15);
    let blocks = BlockType::ALL.iter().filter(|block| !PanelType::for_block(**block).is_row());
    for (index, &block) in blocks.enumerate() {
        for rows in 1..=9 {
            let outputs = ROWS * (1 + (rows + index) % 5) - index % 3;
            check(&Case::new(block, outputs, 256, rows, &mut random), rows, block.name());
        }
    }
    for (index, &ty) in RowType::ALL.iter().enumerate() {
        for rows in 1..=9 {
            let outputs = ROWS * (1 + (rows + index) % 5);
            check(&Case::of_rows(ty, outputs, 192, rows, &mut random), rows, ty.name());
        }
    }
}

/// More rows and columns than one tile pass processes.
#[test]
fn many_rows_give_the_reference_bits() {
    let mut random = TestRandom::new(12);
    let (outputs, rows, columns) = (90, 141, 2304);
    for block in [BlockType::Q4_1, BlockType::Q8_0, BlockType::Q6_K] {
        check_rows(&Case::new(block, outputs, columns, rows, &mut random), &[0, 127, 128, 140], block.name());
    }
    for ty in RowType::ALL {
        check_rows(&Case::of_rows(*ty, outputs, columns, rows, &mut random), &[0, 127, 128, 140], ty.name());
    }
}

/// More panels than accumulators are kept for.
#[test]
fn many_panels_give_the_reference_bits() {
    let mut random = TestRandom::new(14);
    for rows in [5, 11] {
        let (first, last) = (0, rows - 1);
        check_rows(&Case::new(BlockType::Q4_0, 530, 640, rows, &mut random), &[first, last], "Q4_0");
        check_rows(&Case::of_rows(RowType::W4I, 530, 640, rows, &mut random), &[first, last], "W4I");
    }
}

#[test]
fn rows_do_not_depend_on_their_company() {
    let mut random = TestRandom::new(13);
    let (outputs, rows, columns) = (18, 512, 256);
    let block = |ty, random: &mut TestRandom| Case::new(ty, outputs, columns, rows, random);
    let mut cases =
        [BlockType::Q4_1, BlockType::Q6_K, BlockType::F16].map(|ty| block(ty, &mut random)).to_vec();
    cases.extend(RowType::ALL.iter().map(|ty| Case::of_rows(*ty, outputs, columns, rows, &mut random)));
    for case in &cases {
        let want = bits(&case.run(&Kernels::for_cpu(Cpu::scalar())));
        for table in tables() {
            for together in [1, 7, 32, 512] {
                let mut got = vec![f32::NAN; rows * outputs];
                // SAFETY: the output has the given size and is used by this call alone.
                let out = unsafe { Output::new(got.as_mut_ptr(), rows, outputs, outputs) };
                let product = case.product();
                for first in (0..rows).step_by(together) {
                    let some = first..rows.min(first + together);
                    table.matmul()(&product, some, 0..product.panels(), out);
                }
                let isa = table.cpu().features();
                assert!(bits(&got) == want, "{}: {together} rows at once on {isa}", case.panel.name());
            }
        }
    }
}

/// With inputs of the largest magnitude, sums come as close to the limits of their types as possible.
#[test]
fn row_types_do_not_overflow() {
    for ty in RowType::ALL {
        for sign in [1.0, -1.0] {
            let mut random = TestRandom::new(1);
            let mut case = Case::of_rows(*ty, 64, 2048, 21, &mut random);
            let mut row = vec![0; ty.row_bytes(2048).unwrap()];
            assert!(ty.encode(&[-1.0; 2048], None, &mut row));
            for panel in case.weights.chunks_mut(ty.panel().panel_bytes(2048).unwrap()) {
                assert!(panel::pack_rows(*ty, &[row.as_slice(); 16], 2048, panel));
            }
            let layout = QuantizedRowLayout::new(2048);
            for words in case.words.chunks_mut(layout.words()) {
                // A row whose transform has the same value everywhere.
                let mut x = vec![0.0; 2048];
                x.iter_mut().step_by(64).for_each(|x| *x = sign);
                quantize::reference_rotated(&x, words);
            }
            check(&case, 21, ty.name());
            let whole = case.run(&tables()[0])[0] - case.bias[0];
            assert!((whole / (-256.0 * sign) - 1.0).abs() < 0.05, "{} {whole}", ty.name());
        }
    }
}

#[test]
fn a_product_is_close_to_that_of_the_decoded_weights() {
    let mut random = TestRandom::new(10);
    for block in [BlockType::Q4_0, BlockType::Q4_1, BlockType::Q6_K, BlockType::Q8_0, BlockType::F16] {
        let case = Case::new(block, 16, 512, 1, &mut random);
        let product = case.product();
        let mut weights = vec![0.0; 512];
        for output in 0..16 {
            panel::row_values(case.panel, &case.weights, output, 512, &mut weights);
            let exact: f64 = weights.iter().zip(&case.rows).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
            let got = reference(&product, 0, output, &mut weights) - case.bias[output];
            assert!((f64::from(got) - exact).abs() < 0.35, "{}: {got}, not {exact}", block.name());
        }
    }
}

/// Includes enough rows for tiles, an odd number of panels, and no bias.
#[test]
fn parts_and_residual_add_up_to_the_whole() {
    let mut random = TestRandom::new(11);
    let mut cases = vec![Case::new(BlockType::Q4_1, 100, 192, 6, &mut random)];
    for &ty in RowType::ALL {
        cases.push(Case::of_rows(ty, 48, 192, 29, &mut random));
        cases.push(Case::of_rows(ty, 52, 192, 64, &mut random));
        cases.push(Case { bias: Vec::new(), ..Case::of_rows(ty, 112, 192, 32, &mut random) });
    }
    cases.push(Case { bias: Vec::new(), ..Case::new(BlockType::Q8_0, 48, 192, 29, &mut random) });
    for case in &cases {
        let (rows, outputs) = (case.rows.len() / case.columns, case.outputs);
        let product = case.product();
        let residual = random.vector(rows * outputs, 1.0);
        let panels = product.panels();
        let mut first = None;
        for table in tables() {
            let whole = case.run(&table);
            assert_eq!(&bits(&whole), first.get_or_insert_with(|| bits(&whole)), "{}", case.panel.name());
            let mut parts = residual.clone();
            let start = parts.as_mut_ptr();
            let cuts = [(0..rows - 2, 0..3), (rows - 2..rows - 1, 0..3), (rows - 1..rows, 0..3)];
            for (rows_here, panels) in cuts.into_iter().chain([(0..rows, 3..panels)]) {
                // SAFETY: the output has the given size and is used by this call alone; the residual is the
                // output itself.
                let out = unsafe { Output::new(start, rows, outputs, outputs).plus(start, outputs) };
                table.matmul()(&product, rows_here, panels, out);
            }
            for ((part, residual), whole) in parts.iter().zip(&residual).zip(&whole) {
                assert_eq!(part.to_bits(), (residual + whole).to_bits(), "{}", case.panel.name());
            }
        }
    }
}

#[test]
#[should_panic(expected = "rows beyond the input")]
fn a_stride_that_wraps_is_rejected() {
    let mut random = TestRandom::new(3);
    let case = Case::new(BlockType::F32, 16, 64, 2, &mut random);
    let input = Input::Float { rows: &case.rows, stride: usize::MAX - 63 };
    let product = MatmulOperands { input, ..case.product() };
    let mut out = vec![0.0; 32];
    // SAFETY: the output is valid and not used elsewhere.
    let to = unsafe { Output::new(out.as_mut_ptr(), 2, 16, 16) };
    tables()[0].matmul()(&product, 0..2, 0..1, to);
}
