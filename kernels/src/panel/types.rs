//! The panel types, in the order and with the lines of `docs/format.md`.

use super::layout::{BitPlane, PanelLayout, RowScales, ScaleField};
use crate::quant::bit_fields::{Meaning, ScaleRule, Values};
use crate::quant::codebooks;

pub(super) const F32: PanelLayout = float("F32", 4);
pub(super) const F16: PanelLayout = float("F16", 2);
pub(super) const BF16: PanelLayout = float("BF16", 2);

pub(super) const Q8: PanelLayout = PanelLayout {
    name: "Q8",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[BitPlane { bits: 8, shift: 0 }],
    tail: &[ScaleField::Scale(0), ScaleField::Scale(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Signed, rule: ScaleRule::F16, sub_block: 32 },
};

pub(super) const Q8S16: PanelLayout = PanelLayout {
    name: "Q8S16",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[BitPlane { bits: 8, shift: 0 }],
    tail: &[ScaleField::Exact; 4],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Signed, rule: ScaleRule::F32, sub_block: 16 },
};

pub(super) const Q4: PanelLayout = PanelLayout {
    name: "Q4",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[BitPlane { bits: 4, shift: 0 }],
    tail: &[ScaleField::Scale(0), ScaleField::Scale(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(8), rule: ScaleRule::F16, sub_block: 32 },
};

pub(super) const Q4M: PanelLayout = PanelLayout {
    name: "Q4M",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[BitPlane { bits: 4, shift: 0 }],
    tail: &[ScaleField::Scale(0), ScaleField::Scale(1), ScaleField::Min(0), ScaleField::Min(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(0), rule: ScaleRule::F16Min, sub_block: 32 },
};

pub(super) const Q4NL: PanelLayout = PanelLayout {
    name: "Q4NL",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[BitPlane { bits: 4, shift: 0 }],
    tail: &[ScaleField::Scale(0), ScaleField::Scale(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Codebook(&codebooks::IQ4_NL), rule: ScaleRule::F16, sub_block: 32 },
};

pub(super) const MXFP4: PanelLayout = PanelLayout {
    name: "MXFP4",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[BitPlane { bits: 4, shift: 0 }],
    tail: &[ScaleField::Scale(0), ScaleField::Scale(1)],
    rows: RowScales::Absent,
    meaning: Meaning {
        values: Values::Codebook(&codebooks::FP4_DOUBLED),
        rule: ScaleRule::Bf16,
        sub_block: 32,
    },
};

pub(super) const Q5: PanelLayout = PanelLayout {
    name: "Q5",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[BitPlane { bits: 4, shift: 0 }, BitPlane { bits: 1, shift: 4 }],
    tail: &[ScaleField::Scale(0), ScaleField::Scale(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(16), rule: ScaleRule::F16, sub_block: 32 },
};

pub(super) const Q5M: PanelLayout = PanelLayout {
    name: "Q5M",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[BitPlane { bits: 4, shift: 0 }, BitPlane { bits: 1, shift: 4 }],
    tail: &[ScaleField::Scale(0), ScaleField::Scale(1), ScaleField::Min(0), ScaleField::Min(1)],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(0), rule: ScaleRule::F16Min, sub_block: 32 },
};

pub(super) const Q4K: PanelLayout = PanelLayout {
    name: "Q4K",
    columns: 256,
    float_bytes: 0,
    head: &[ScaleField::Scale(0), ScaleField::Min(0)],
    planes: &[BitPlane { bits: 4, shift: 0 }],
    tail: &[ScaleField::Factor, ScaleField::Factor, ScaleField::MinFactor, ScaleField::MinFactor],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(0), rule: ScaleRule::FactorMin, sub_block: 32 },
};

pub(super) const Q5K: PanelLayout = PanelLayout {
    name: "Q5K",
    columns: 256,
    float_bytes: 0,
    head: &[ScaleField::Scale(0), ScaleField::Min(0)],
    planes: &[BitPlane { bits: 4, shift: 0 }, BitPlane { bits: 1, shift: 4 }],
    tail: &[ScaleField::Factor, ScaleField::Factor, ScaleField::MinFactor, ScaleField::MinFactor],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(0), rule: ScaleRule::FactorMin, sub_block: 32 },
};

pub(super) const Q6K: PanelLayout = PanelLayout {
    name: "Q6K",
    columns: 256,
    float_bytes: 0,
    head: &[ScaleField::Scale(0)],
    planes: &[BitPlane { bits: 4, shift: 0 }, BitPlane { bits: 2, shift: 4 }],
    tail: &[ScaleField::Factor; 4],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(32), rule: ScaleRule::Factor, sub_block: 16 },
};

pub(super) const Q3K: PanelLayout = PanelLayout {
    name: "Q3K",
    columns: 256,
    float_bytes: 0,
    head: &[ScaleField::Scale(0)],
    planes: &[BitPlane { bits: 2, shift: 0 }, BitPlane { bits: 1, shift: 2 }],
    tail: &[ScaleField::Factor; 4],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(4), rule: ScaleRule::Factor, sub_block: 16 },
};

pub(super) const Q2K: PanelLayout = PanelLayout {
    name: "Q2K",
    columns: 256,
    float_bytes: 0,
    head: &[ScaleField::Scale(0), ScaleField::Min(0)],
    planes: &[BitPlane { bits: 2, shift: 0 }],
    tail: &[ScaleField::Nibbles; 4],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(0), rule: ScaleRule::FactorMin, sub_block: 16 },
};

const IQ4XS_HEAD: [ScaleField; 10] = {
    let mut fields = [ScaleField::Factor; 10];
    fields[0] = ScaleField::Scale(0);
    fields[1] = ScaleField::Gap;
    fields
};

pub(super) const IQ4XS: PanelLayout = PanelLayout {
    name: "IQ4XS",
    columns: 256,
    float_bytes: 0,
    head: &IQ4XS_HEAD,
    planes: &[BitPlane { bits: 4, shift: 0 }],
    tail: &[],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Codebook(&codebooks::IQ4_NL), rule: ScaleRule::Factor, sub_block: 32 },
};

pub(super) const TERNARY: PanelLayout = PanelLayout {
    name: "TERNARY",
    columns: 256,
    float_bytes: 0,
    head: &[ScaleField::Scale(0)],
    planes: &[BitPlane { bits: 2, shift: 0 }],
    tail: &[],
    rows: RowScales::Absent,
    meaning: Meaning { values: Values::Offset(1), rule: ScaleRule::F16Per256, sub_block: 32 },
};

pub(super) const W8R: PanelLayout = PanelLayout {
    name: "W8R",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[BitPlane { bits: 8, shift: 0 }],
    tail: &[],
    rows: RowScales::Full,
    meaning: Meaning { values: Values::Signed, rule: ScaleRule::Row, sub_block: 32 },
};

pub(super) const W4I: PanelLayout = PanelLayout {
    name: "W4I",
    columns: 64,
    float_bytes: 0,
    head: &[],
    planes: &[BitPlane { bits: 4, shift: 0 }],
    tail: &[ScaleField::FourFactors],
    rows: RowScales::Bf16,
    meaning: Meaning { values: Values::Codebook(&codebooks::W4I), rule: ScaleRule::RowFactor, sub_block: 16 },
};

const fn float(name: &'static str, float_bytes: usize) -> PanelLayout {
    let meaning = Meaning { values: Values::Signed, rule: ScaleRule::F32, sub_block: 64 };
    PanelLayout {
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
