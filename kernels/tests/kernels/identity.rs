//! Bit identity on every machine: the output bits of every kernel of every list against committed hashes.
//!
//! `kernels/tests/data/hashes.txt` has one line per operation and variant. A change of a contract changes
//! them: `cargo test -p siskin-kernels --test kernels -- --ignored bless` rewrites the file.

use std::fmt::Write as _;

use crate::common::{TestRandom, tables};
use crate::matmul::Case;
use siskin_kernels::Cpu;
use siskin_kernels::ops::attention::{AttentionArguments, CacheType, Query};
use siskin_kernels::ops::quantize::QuantizedRowLayout;
use siskin_kernels::ops::{Kernels, activation, elementwise, norm, recurrence, rope};
use siskin_kernels::panel::ROWS;
use siskin_kernels::quant::BlockType;
use siskin_kernels::quant::row::RowType;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/hashes.txt");

/// 64-bit FNV-1a over the little-endian bytes of words.
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn words(&mut self, words: &[i32]) {
        words.iter().for_each(|word| self.bytes(&word.to_le_bytes()));
    }

    /// NaN bit patterns differ between machines, so outputs must not contain NaN.
    fn floats(&mut self, values: &[f32]) {
        assert!(values.iter().all(|value| value.is_finite()), "numbers that are not finite");
        values.iter().for_each(|value| self.bytes(&value.to_bits().to_le_bytes()));
    }
}

/// The lines of the file, computed with each of the kernel tables.
struct Lines<'a> {
    tables: &'a [Kernels],
    texts: Vec<String>,
}

impl Lines<'_> {
    fn add(&mut self, name: impl std::fmt::Display, fill: impl Fn(&Kernels, &mut Hash)) {
        for (table, text) in self.tables.iter().zip(&mut self.texts) {
            let mut hash = Hash::new();
            fill(table, &mut hash);
            writeln!(text, "{name} {:016x}", hash.0).expect("a string takes everything");
        }
    }
}

/// Computes every line with each table.
fn lines(tables: &[Kernels]) -> Vec<String> {
    let mut lines = Lines { tables, texts: vec![String::new(); tables.len()] };
    rows(&mut lines);
    heads(&mut lines);
    for &block in BlockType::ALL {
        encoded(block, &mut lines);
        products(block, &mut lines);
    }
    for &ty in RowType::ALL {
        row_products(ty, &mut lines);
    }
    lines.texts
}

/// An operation on one or two rows.
type RowFunction<'a> = dyn Fn(&Kernels, &[f32], &[f32], &mut [f32]) + 'a;

/// Hashes the operations on rows.
fn rows(lines: &mut Lines<'_>) {
    let mut random = TestRandom::new(20);
    let lengths = [1, 16, 31, 576, 641];
    let pairs: Vec<_> =
        lengths.iter().map(|&length| (random.vector(length, 9.0), random.vector(length, 2.0))).collect();
    let mut each = |name: String, run: &RowFunction<'_>| {
        lines.add(name, |table, hash| {
            for (a, b) in &pairs {
                let mut out = vec![f32::NAN; a.len()];
                run(table, a, b, &mut out);
                hash.floats(&out);
            }
        });
    };
    each("add".to_owned(), &|table, a, b, out| table.add()(a, b, out));
    each("affine".to_owned(), &|table, a, b, out| table.affine()(a, b, a, out));
    for &kind in activation::ActivationFunction::ALL {
        each(format!("activate-{kind:?}"), &|table, a, _, out| table.activate()(kind, a, out));
        each(format!("gate-{kind:?}"), &|table, a, b, out| table.gate()(kind, a, b, out));
    }
    each("gate-limited".to_owned(), &|table, a, b, out| {
        table.limited_gate()(activation::GateLimits { limit: 7.0, slope: 1.702 }, a, b, out);
    });
    for map in [
        elementwise::ElementwiseFunction::Scale(0.22),
        elementwise::ElementwiseFunction::Softcap(3.0),
        elementwise::ElementwiseFunction::Clamp(4.0),
    ] {
        each(format!("map-{map:?}"), &|table, a, _, out| table.map()(map, a, out));
    }
    for (name, centered) in [("norm-rms", false), ("norm-layer", true)] {
        each(name.to_owned(), &|table, a, b, out| {
            let arguments = norm::NormArguments { centered, weight: b, bias: a, epsilon: 1e-5 };
            table.norm()(&arguments, a, out);
        });
    }
    for (name, quantize) in [
        ("quantize", Kernels::quantize as fn(&Kernels) -> _),
        ("quantize-rotated", Kernels::quantize_rotated),
    ] {
        lines.add(name, |table, hash| {
            for (a, _) in &pairs {
                let mut words = vec![-1; QuantizedRowLayout::new(a.len()).words()];
                quantize(table)(a, &mut words);
                hash.words(&words);
            }
        });
    }
}

/// Hashes the operations on heads.
fn heads(lines: &mut Lines<'_>) {
    let mut random = TestRandom::new(21);
    let sizes = [(24, 12, 3), (64, 32, 2), (80, 16, 1), (14, 7, 2)];
    let rows: Vec<_> =
        sizes.iter().map(|(head_size, _, heads)| random.vector(head_size * heads, 2.0)).collect();
    lines.add("rope", |table, hash| {
        for (&(head_size, pairs, _), x) in sizes.iter().zip(&rows) {
            let frequencies: Vec<f32> = (0..pairs).map(|i| 1.0 / (1 + 3 * i) as f32).collect();
            let mut cos_sin = vec![0.0; 2 * pairs];
            rope::cos_sin(&frequencies, 1.0, 12_345, &mut cos_sin);
            let mut out = vec![f32::NAN; x.len()];
            table.rope()(&cos_sin, head_size, x, &mut out);
            hash.floats(&cos_sin);
            hash.floats(&out);
        }
    });
    recurrences(&mut TestRandom::new(25), lines);
    for cache in [CacheType::Int8, CacheType::F16, CacheType::F32, CacheType::Int14] {
        attentions(cache, &mut random, lines);
    }
}

fn recurrences(random: &mut TestRandom, lines: &mut Lines<'_>) {
    for (name, rate) in [("recurrence", None), ("recurrence-delta", Some(0.7))] {
        let [query, key, value] = [24, 24, 16 * 9].map(|length| random.vector(length, 1.0));
        let state = random.vector(query.len() * value.len(), 1.0);
        lines.add(name, |table, hash| {
            let (mut state, mut out) = (state.clone(), vec![f32::NAN; value.len()]);
            for decay in [1.0, 0.9] {
                let token =
                    recurrence::RecurrenceInputs { query: &query, key: &key, value: &value, decay, rate };
                table.recurrence()(&token, &mut state, &mut out);
                hash.floats(&out);
            }
            hash.floats(&state);
        });
    }
}

fn attentions(cache: CacheType, random: &mut TestRandom, lines: &mut Lines<'_>) {
    let sizes = [(16, 5, 0.0, 0.0), (24, 70, 50.0, 0.0), (64, 600, 0.0, 0.25), (80, 257, 0.0, 0.0)];
    let cases = sizes.map(|(head_size, length, softcap, slope)| {
        let (blocks, _) = crate::attention::cache(cache, head_size, length, random);
        let values: Vec<_> = (0..4).map(|_| random.vector(head_size, 2.0)).collect();
        (AttentionArguments { head_size, scale: 0.2, softcap, cache }, blocks, values, length, slope)
    });
    lines.add(format_args!("attention-{cache:?}"), |table, hash| {
        for (arguments, blocks, values, length, slope) in &cases {
            let query =
                |(i, values)| Query { first: i / 2, slope: *slope, ..Query::at(length - 1 - i, values) };
            let queries: Vec<_> = values.iter().map(Vec::as_slice).enumerate().map(query).collect();
            for count in 1..=4 {
                let out = crate::attention::run(table, arguments, &queries[..count], blocks);
                out.iter().for_each(|out| hash.floats(out));
            }
        }
    });
}

/// Returns column counts that are whole numbers of blocks.
fn columns(block: BlockType) -> [usize; 2] {
    match block.codec().elements {
        1 => [97, 300],
        256 => [256, 1280],
        32 => [96, 576],
        other => panic!("{}: add columns that are whole blocks of {other}", block.name()),
    }
}

/// Hashes the encoder, which has no kernels but must not depend on the machine either.
fn encoded(block: BlockType, lines: &mut Lines<'_>) {
    let [_, columns] = columns(block);
    let values = TestRandom::new(22).vector(columns, 0.5);
    let mut row = vec![0; block.row_bytes(columns).unwrap()];
    if block.quantize_row(&values, None, &mut row) {
        lines.add(format_args!("encode-{}", block.name()), |_, hash| hash.bytes(&row));
    }
}

fn products(block: BlockType, lines: &mut Lines<'_>) {
    let mut random = TestRandom::new(23);
    let mut cases = Vec::new();
    for columns in columns(block) {
        for (rows, outputs) in [(1, 83), (2, 16), (4, 35), (7, 48), (32, 5)] {
            cases.push(Case::new(block, outputs, columns, rows, &mut random));
        }
    }
    lines.add(format_args!("matmul-{}", block.name()), |table, hash| {
        cases.iter().for_each(|case| hash.floats(&case.run(table)));
    });
    lookups(block.name(), &cases, lines);
}

fn row_products(ty: RowType, lines: &mut Lines<'_>) {
    let mut random = TestRandom::new(24);
    let cases = [(1, 83, 576), (4, 35, 64), (7, 48, 300), (32, 5, 1000)];
    let cases = cases.map(|(rows, outputs, columns)| Case::of_rows(ty, outputs, columns, rows, &mut random));
    lines.add(format_args!("matmul-{}", ty.name()), |table, hash| {
        cases.iter().for_each(|case| hash.floats(&case.run(table)));
    });
    lookups(ty.name(), &cases, lines);
}

/// Hashes rows of the first panels of some matrices.
fn lookups(name: &str, cases: &[Case], lines: &mut Lines<'_>) {
    lines.add(format_args!("lookup-{name}"), |table, hash| {
        for case in cases {
            let panel = &case.weights[..case.panel.panel_bytes(case.columns).unwrap()];
            let mut out = vec![f32::NAN; case.columns];
            for lane in [0, case.outputs.min(ROWS) - 1] {
                table.lookup()(case.panel, panel, lane, &mut out);
                hash.floats(&out);
            }
        }
    });
}

#[test]
fn every_kernel_gives_the_committed_bits() {
    let committed = std::fs::read_to_string(PATH).unwrap();
    let mut tables = tables();
    // In an emulator the portable table takes as long as all others together; other machines run it too.
    let everything = std::env::var_os("SISKIN_TEST_ALL").is_some_and(|text| text == "1");
    if cfg!(target_arch = "aarch64") && !everything && tables.len() > 1 {
        println!("left out: 1 of {} kernel tables; `cargo xtask test --all` runs it", tables.len());
        tables.pop();
    }
    for (table, computed) in tables.iter().zip(lines(&tables)) {
        let known = |line: &&str| committed.lines().any(|known| known == *line);
        let differ: Vec<_> = computed.lines().filter(|line| !known(line)).collect();
        assert!(differ.is_empty(), "on {} other bits:\n{}", table.cpu().features(), differ.join("\n"));
        assert_eq!(computed.lines().count(), committed.lines().count(), "lines of {PATH}");
    }
}

#[test]
#[ignore = "writes the committed hashes"]
fn bless() {
    std::fs::write(PATH, lines(&[Kernels::for_cpu(Cpu::scalar())]).concat()).unwrap();
}
