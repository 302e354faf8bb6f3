//! The panel types, in the order and with the lines of `docs/format.md`.

use super::layout::{Field, Layout, Plane, RowScales};
use crate::quant::codebooks;
use crate::quant::parts::{Meaning, Rule, Values};

pub(super) const F32: Layout = float("F32", 4);
pub(super) const F16: Layout = float("F16", 2);
pub(super) const BF16: Layout = float("BF16", 2);

pub(super) const Q8: Layout = Layout {
    name: "Q8",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[Plane { bits: 8, shift: 0 }],
    tail: &[Field::Scale(0), Field::Scale(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Signed, rule: Rule::Half, sub_block: 32 },
};

pub(super) const Q8S16: Layout = Layout {
    name: "Q8S16",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[Plane { bits: 8, shift: 0 }],
    tail: &[Field::Exact; 4],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Signed, rule: Rule::Exact, sub_block: 16 },
};

pub(super) const Q4: Layout = Layout {
    name: "Q4",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[Plane { bits: 4, shift: 0 }],
    tail: &[Field::Scale(0), Field::Scale(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(8), rule: Rule::Half, sub_block: 32 },
};

pub(super) const Q4M: Layout = Layout {
    name: "Q4M",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[Plane { bits: 4, shift: 0 }],
    tail: &[Field::Scale(0), Field::Scale(1), Field::Min(0), Field::Min(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(0), rule: Rule::HalfMin, sub_block: 32 },
};

pub(super) const Q4NL: Layout = Layout {
    name: "Q4NL",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[Plane { bits: 4, shift: 0 }],
    tail: &[Field::Scale(0), Field::Scale(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Codebook(&codebooks::IQ4_NL), rule: Rule::Half, sub_block: 32 },
};

pub(super) const MXFP4: Layout = Layout {
    name: "MXFP4",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[Plane { bits: 4, shift: 0 }],
    tail: &[Field::Scale(0), Field::Scale(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Codebook(&codebooks::FP4_DOUBLED), rule: Rule::Brain, sub_block: 32 },
};

pub(super) const Q5: Layout = Layout {
    name: "Q5",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[Plane { bits: 4, shift: 0 }, Plane { bits: 1, shift: 4 }],
    tail: &[Field::Scale(0), Field::Scale(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(16), rule: Rule::Half, sub_block: 32 },
};

pub(super) const Q5M: Layout = Layout {
    name: "Q5M",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[Plane { bits: 4, shift: 0 }, Plane { bits: 1, shift: 4 }],
    tail: &[Field::Scale(0), Field::Scale(1), Field::Min(0), Field::Min(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(0), rule: Rule::HalfMin, sub_block: 32 },
};

pub(super) const Q4K: Layout = Layout {
    name: "Q4K",
    columns: 256,
    float_bytes: 0,
    head: &[Field::Scale(0), Field::Min(0)],
    planes: &[Plane { bits: 4, shift: 0 }],
    tail: &[Field::Factor, Field::Factor, Field::MinFactor, Field::MinFactor],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(0), rule: Rule::FactorMin, sub_block: 32 },
};

pub(super) const Q5K: Layout = Layout {
    name: "Q5K",
    columns: 256,
    float_bytes: 0,
    head: &[Field::Scale(0), Field::Min(0)],
    planes: &[Plane { bits: 4, shift: 0 }, Plane { bits: 1, shift: 4 }],
    tail: &[Field::Factor, Field::Factor, Field::MinFactor, Field::MinFactor],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(0), rule: Rule::FactorMin, sub_block: 32 },
};

pub(super) const Q6K: Layout = Layout {
    name: "Q6K",
    columns: 256,
    float_bytes: 0,
    head: &[Field::Scale(0)],
    planes: &[Plane { bits: 4, shift: 0 }, Plane { bits: 2, shift: 4 }],
    tail: &[Field::Factor; 4],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(32), rule: Rule::Factor, sub_block: 16 },
};

pub(super) const Q3K: Layout = Layout {
    name: "Q3K",
    columns: 256,
    float_bytes: 0,
    head: &[Field::Scale(0)],
    planes: &[Plane { bits: 2, shift: 0 }, Plane { bits: 1, shift: 2 }],
    tail: &[Field::Factor; 4],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(4), rule: Rule::Factor, sub_block: 16 },
};

pub(super) const Q2K: Layout = Layout {
    name: "Q2K",
    columns: 256,
    float_bytes: 0,
    head: &[Field::Scale(0), Field::Min(0)],
    planes: &[Plane { bits: 2, shift: 0 }],
    tail: &[Field::Nibbles; 4],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(0), rule: Rule::FactorMin, sub_block: 16 },
};

const IQ4XS_HEAD: [Field; 10] = {
    let mut fields = [Field::Factor; 10];
    fields[0] = Field::Scale(0);
    fields[1] = Field::Gap;
    fields
};

pub(super) const IQ4XS: Layout = Layout {
    name: "IQ4XS",
    columns: 256,
    float_bytes: 0,
    head: &IQ4XS_HEAD,
    planes: &[Plane { bits: 4, shift: 0 }],
    tail: &[],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Codebook(&codebooks::IQ4_NL), rule: Rule::Factor, sub_block: 32 },
};

pub(super) const TERNARY: Layout = Layout {
    name: "TERNARY",
    columns: 256,
    float_bytes: 0,
    head: &[Field::Scale(0)],
    planes: &[Plane { bits: 2, shift: 0 }],
    tail: &[],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(1), rule: Rule::Whole, sub_block: 32 },
};

pub(super) const W8R: Layout = Layout {
    name: "W8R",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[Plane { bits: 8, shift: 0 }],
    tail: &[],
    rows: RowScales::Full,
    meaning: Meaning { values: Values::Signed, rule: Rule::Row, sub_block: 32 },
};

pub(super) const W4I: Layout = Layout {
    name: "W4I",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[Plane { bits: 4, shift: 0 }],
    tail: &[Field::FourFactors],
    rows: RowScales::Brain,
    meaning: Meaning { values: Values::Codebook(&codebooks::W4I), rule: Rule::RowFactor, sub_block: 16 },
};

const fn float(name: &'static str, float_bytes: usize) -> Layout {
    let meaning = Meaning { values: Values::Signed, rule: Rule::Exact, sub_block: 64 };
    Layout {
        name,
        columns: 64,
        float_bytes,
        head: &[],
        planes: &[],
        tail: &[],
        rows: RowScales::Absent,
        meaning,
    }
}
