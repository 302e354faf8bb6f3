//! Row-wise operations as the kernel `row_ops` interprets them.

use siskin_cuda::PointwiseFunction;
use siskin_device::DevicePtr;
use siskin_graph::ActivationFunction;

macro_rules! row_op_codes {
    ($($name:ident,)*) => {
        /// What an operation does. The order is that of `RowOpCode` in `runtime/cuda/kernels/row_ops.cu`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum RowOpCode {
            $($name,)*
        }

        #[cfg(test)]
        const CODES: &[RowOpCode] = &[$(RowOpCode::$name,)*];
    };
}

row_op_codes! {
    Copy,
    Select,
    Embed,
    Norm,
    Rope,
    Pointwise,
    Gate,
    ClampedGate,
    Add,
    Affine,
    RepeatColumns,
    Quantize,
    QuantizeRotated,
    StoreKv,
}

/// Rows on the device: the first, and words from one row to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceRows {
    pub ptr: DevicePtr,
    pub stride: usize,
}

/// The columns by which a row is divided among blocks.
pub(crate) const CHUNK: usize = 256;

/// Parameters of an operation.
pub(crate) const PARAMETERS: usize = 8;

/// An operation: the fields of `RowOp` in `row_ops.cu`, each eight bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EncodedRowOp {
    pub code: RowOpCode,
    pub from: DeviceRows,
    pub other: DeviceRows,
    pub to: DeviceRows,
    pub columns: usize,
    pub parameters: [u64; PARAMETERS],
}

impl EncodedRowOp {
    pub(crate) fn new(code: RowOpCode, from: DeviceRows, to: DeviceRows, columns: usize) -> Self {
        Self { code, from, other: DeviceRows::default(), to, columns, parameters: [0; PARAMETERS] }
    }

    pub(crate) fn other(self, other: DeviceRows) -> Self {
        Self { other, ..self }
    }

    pub(crate) fn parameters<const N: usize>(mut self, parameters: [u64; N]) -> Self {
        self.parameters[..N].copy_from_slice(&parameters);
        self
    }

    /// Appends the bytes.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let words = [
            self.code as u64,
            self.from.ptr,
            self.from.stride as u64,
            self.other.ptr,
            self.other.stride as u64,
            self.to.ptr,
            self.to.stride as u64,
            self.columns as u64,
        ];
        out.extend(words.iter().chain(&self.parameters).flat_map(|word| word.to_le_bytes()));
    }

    /// Returns the columns that a launch is divided by: those of padded quantized rows.
    pub(crate) fn padded_columns(&self) -> usize {
        self.columns.next_multiple_of(CHUNK)
    }

    /// Returns whether the operation reads rows of `from` that are not its own.
    fn reads_other_rows(&self) -> bool {
        self.code == RowOpCode::Select
    }

    /// Returns whether a chunk of columns of the result only depends on the same columns of `from`.
    fn is_local(&self) -> bool {
        match self.code {
            RowOpCode::Norm => CHUNK.is_multiple_of(self.parameters[4].max(1) as usize),
            RowOpCode::Rope => CHUNK.is_multiple_of(self.parameters[0].max(1) as usize),
            RowOpCode::RepeatColumns | RowOpCode::QuantizeRotated => false,
            RowOpCode::Copy
            | RowOpCode::Select
            | RowOpCode::Embed
            | RowOpCode::Pointwise
            | RowOpCode::Gate
            | RowOpCode::ClampedGate
            | RowOpCode::Add
            | RowOpCode::Affine
            | RowOpCode::Quantize
            | RowOpCode::StoreKv => true,
        }
    }

    /// Returns whether the operation may follow `earlier` in a launch, whose blocks compute some columns of a row each.
    pub(crate) fn can_follow(&self, earlier: &Self) -> bool {
        let written = earlier.to.ptr..earlier.to.ptr + 4 * earlier.columns as DevicePtr;
        let reads = |rows: DeviceRows, is_local: bool| {
            let overlaps = rows.ptr < written.end && rows.ptr + 4 * self.columns as DevicePtr > written.start;
            !overlaps || (is_local && rows.ptr == written.start)
        };
        // The angles of RoPE are read by all heads.
        reads(self.from, self.is_local() && !self.reads_other_rows())
            && reads(self.other, self.code != RowOpCode::Rope)
    }

    /// Returns the floats of shared memory that the operation needs, and those with which it is faster.
    pub(crate) fn shared_floats(&self) -> [usize; 2] {
        if self.code != RowOpCode::Norm {
            return [0, 0];
        }
        let group = (self.parameters[4] as usize).max(1);
        let statistics = 2 * (self.columns / group);
        [statistics, statistics + self.columns]
    }
}

/// Returns the bits of a float, as a parameter.
pub(crate) fn bits(value: f32) -> u64 {
    u64::from(value.to_bits())
}

/// A function of each column.
pub(crate) fn pointwise(op: EncodedRowOp, function: PointwiseFunction, parameter: f32) -> EncodedRowOp {
    op.parameters([function.code() as u64, bits(parameter)])
}

/// An activation function of `gate`, times `up`.
pub(crate) fn gated(
    function: ActivationFunction,
    gate: DeviceRows,
    up: DeviceRows,
    to: DeviceRows,
    columns: usize,
) -> EncodedRowOp {
    let code = PointwiseFunction::Activation(function).code();
    EncodedRowOp::new(RowOpCode::Gate, gate, to, columns).other(up).parameters([code as u64])
}

#[cfg(test)]
mod tests {
    use super::*;
    use siskin_cuda::KernelSource;

    #[test]
    fn codes_are_those_of_the_kernel() {
        let source = KernelSource::of_kernel("row_ops").expect("the kernel");
        let list = source.text.split_once("enum RowOpCode {").and_then(|(_, rest)| rest.split_once("};"));
        let names: Vec<String> = list
            .expect("the enum")
            .0
            .split(',')
            .map(|name| name.trim().trim_start_matches("ROW_").replace('_', "").to_lowercase())
            .filter(|name| !name.is_empty())
            .collect();
        let own: Vec<String> = CODES.iter().map(|code| format!("{code:?}").to_lowercase()).collect();
        assert_eq!(names, own);
        assert!(CODES.iter().zip(0..).all(|(code, number)| *code as u64 == number));
    }
}
