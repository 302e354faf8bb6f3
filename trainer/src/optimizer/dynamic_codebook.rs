//! Block-wise dynamic quantization to 8 bits: blocks with a scale, and a codebook that is finer near zero.

/// Elements that share a scale.
pub(super) const BLOCK: usize = 256;

/// The codebook: 256 values in ascending order; the largest is 1.
pub(super) struct DynamicCodebook {
    codes: [f32; 256],
    /// The midpoints between adjacent values.
    midpoints: [f32; 255],
}

impl DynamicCodebook {
    /// Creates the dynamic codebook of bitsandbytes: seven decades up to 1, the n-th divided into 2ⁿ parts. A signed
    /// codebook mirrors them below zero; an unsigned one has twice as many parts.
    pub(super) fn new(signed: bool) -> Self {
        let mut list = vec![0.0_f32, 1.0];
        for decade in 0..7 {
            let parts = 1 << if signed { decade } else { decade + 1 };
            let scale = 10_f64.powi(decade - 6);
            for part in 0..parts {
                let middle = 0.1 + 0.9 * (f64::from(part) + 0.5) / f64::from(parts);
                let number = (scale * middle) as f32;
                list.push(number);
                if signed {
                    list.push(-number);
                }
            }
        }
        list.sort_by(f32::total_cmp);
        let numbers = std::array::from_fn(|index| list[index]);
        let between = std::array::from_fn(|index| (list[index] + list[index + 1]) * 0.5);
        Self { codes: numbers, midpoints: between }
    }

    /// Returns both lists, each padded to 256 elements.
    pub(super) fn table(&self) -> Vec<f32> {
        [&self.codes[..], &self.midpoints, &[0.0]].concat()
    }

    /// Dequantizes a block.
    pub(super) fn dequantize(&self, bytes: &[u8], scale: f32, out: &mut [f32]) {
        out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = self.codes[usize::from(*byte)] * scale);
    }

    /// Quantizes a block to the nearest codes; returns its scale.
    pub(super) fn quantize(&self, numbers: &[f32], bytes: &mut [u8]) -> f32 {
        let scale = numbers.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        let divisor = if scale > 0.0 { scale } else { 1.0 };
        for (number, byte) in numbers.iter().zip(bytes) {
            let number = number / divisor;
            *byte = self.midpoints.partition_point(|between| *between < number) as u8;
        }
        scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quantized_to_the_nearest_code() {
        for signed in [true, false] {
            let codes = DynamicCodebook::new(signed);
            assert!(codes.codes.windows(2).all(|pair| pair[0] < pair[1]), "256 different numbers");
            let sign = |index: usize| if signed && index % 2 == 1 { -1.0 } else { 1.0 };
            let numbers: Vec<f32> =
                (0..BLOCK).map(|index| sign(index) * (index as f32 * 0.37).exp().recip() * 3.0).collect();
            let mut bytes = [0; BLOCK];
            let scale = codes.quantize(&numbers, &mut bytes);
            assert_eq!(scale, 3.0);
            let mut back = [0.0; BLOCK];
            codes.dequantize(&bytes, scale, &mut back);
            for (number, back) in numbers.iter().zip(back) {
                let best = codes.codes.iter().map(|code| (code * scale - number).abs()).fold(9.0, f32::min);
                assert!((number - back).abs() <= best * 1.000_01, "{number} became {back}");
            }
            let mut again = [0; BLOCK];
            assert_eq!(codes.quantize(&back, &mut again), scale);
            assert_eq!(again, bytes, "what was read is written as it was");
        }
    }

    #[test]
    fn zero_blocks_round_trip() {
        let codes = DynamicCodebook::new(true);
        let (mut bytes, mut back) = ([9; 4], [9.0; 4]);
        let scale = codes.quantize(&[0.0; 4], &mut bytes);
        codes.dequantize(&bytes, scale, &mut back);
        assert_eq!(back, [0.0; 4]);
        codes.dequantize(&bytes, 5.0, &mut back);
        assert_eq!(back, [0.0; 4], "zero is one of the numbers");
    }
}
