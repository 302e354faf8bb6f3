//! Log-mel spectrogram, as computed by `WhisperFeatureExtractor` of Hugging Face.
//!
//! A frame is 400 samples under a Hann window, centered on every 160th sample; the signal is reflected at its ends. The
//! power spectrum is summed to mel bands, of which log₁₀ is taken. Values more than 80 dB below the maximum over all
//! bands and frames are clamped to that, and the result is scaled.

use super::RATE;
use super::fft::{ComplexVector, Fft, SIZE};
use super::filters::{BINS, Filters};
use siskin_format::{Error, Result};
use std::array::from_fn;
use std::f64::consts::TAU;
use std::fmt;

/// The hop length, in samples.
const HOP: usize = 160;
/// The minimum power of a band, so that silence has a logarithm.
const FLOOR: f64 = 1e-10;
/// The dynamic range below the maximum, in log₁₀ of the power.
const DEPTH: f32 = 8.0;

const MAX_SECONDS: usize = 300;

/// Computes log-mel features of windows of one length. It holds no state: the same samples give the same features.
///
/// ```
/// use siskin_audio::{AudioSamples, Mel};
///
/// let audio = AudioSamples::from_pcm16(&[0; 3200], 16_000, 1)?;
/// let features = Mel::new(80, 30)?.features(&audio.samples, 0);
/// assert_eq!((features.frames, features.values.len()), (3000, 3000 * 80));
/// # Ok::<(), siskin_format::Error>(())
/// ```
pub struct Mel {
    seconds: usize,
    window: [f64; SIZE],
    fft: Fft,
    filters: Filters,
}

/// The features of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowFeatures {
    /// The number of frames, a hundred per second.
    pub frames: usize,
    /// The number of mel bands.
    pub bands: usize,
    /// The values, one row of `bands` per frame.
    pub values: Vec<f32>,
}

impl Mel {
    /// Creates an extractor of `bands` mel bands (80 or 128 for Whisper) for windows of `seconds` (30 for Whisper).
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin_format::ErrorKind::Argument) if the number of bands is zero or above 201, or windows are
    /// empty or longer than 300 seconds.
    pub fn new(bands: usize, seconds: usize) -> Result<Self> {
        if !(1..=BINS).contains(&bands) {
            return Err(Error::argument("bands", format!("{bands} mel bands; expected 1 to {BINS}")));
        }
        if !(1..=MAX_SECONDS).contains(&seconds) {
            let message = format!("windows of {seconds} seconds; expected 1 to {MAX_SECONDS}");
            return Err(Error::argument("seconds", message));
        }
        let window = from_fn(|index| 0.5 - 0.5 * libm::cos(TAU * index as f64 / SIZE as f64));
        Ok(Self { seconds, window, fft: Fft::new(), filters: Filters::new(bands) })
    }

    /// Returns the number of mel bands.
    pub fn bands(&self) -> usize {
        self.filters.bands()
    }

    /// Returns the number of samples of a window.
    pub fn samples(&self) -> usize {
        self.seconds * RATE as usize
    }

    /// Returns the number of frames of a window.
    pub fn frames(&self) -> usize {
        self.samples() / HOP
    }

    /// Returns the features of the window that begins at sample `from`, at [`RATE`], zero-padded after the last sample.
    ///
    /// NaN or infinity in the window gives features that are not finite.
    pub fn features(&self, samples: &[f32], from: usize) -> WindowFeatures {
        let rest = samples.get(from..).unwrap_or_default();
        self.compute(&rest[..rest.len().min(self.samples())], self.samples())
    }

    /// Returns the features of all samples, at [`RATE`], as one window of their length: one frame per 160 samples.
    ///
    /// NaN or infinity gives features that are not finite.
    pub fn whole(&self, samples: &[f32]) -> WindowFeatures {
        self.compute(samples, samples.len())
    }

    /// Returns the features of `sound`, zero-padded to `length` samples.
    fn compute(&self, sound: &[f32], length: usize) -> WindowFeatures {
        let (frames, bands) = (length / HOP, self.bands());
        let mut values = vec![0.0; frames * bands];
        let (mut data, mut spare) = (ComplexVector::zero(), ComplexVector::zero());
        // Two real frames share a complex transform, as its real and its imaginary part.
        for (pair, rows) in values.chunks_mut(2 * bands).enumerate() {
            let (first, second) = rows.split_at_mut(bands);
            let heard = self.load(&mut data.real, sound, length, 2 * pair)
                | self.load(&mut data.imaginary, sound, length, 2 * pair + 1);
            if !heard {
                rows.fill(libm::log10(FLOOR) as f32);
                continue;
            }
            self.fft.transform(&mut data, &mut spare);
            let mirror = |bin: usize| (SIZE - bin) % SIZE;
            let square = |a: f64, b: f64| (a * a + b * b) / 4.0;
            let (real, imaginary) = (&data.real, &data.imaginary);
            let power = from_fn(|k| square(real[k] + real[mirror(k)], imaginary[k] - imaginary[mirror(k)]));
            self.write(first, &power);
            let power = from_fn(|k| square(imaginary[k] + imaginary[mirror(k)], real[k] - real[mirror(k)]));
            self.write(second, &power);
        }
        scale(&mut values);
        WindowFeatures { frames, bands, values }
    }

    /// Writes a windowed frame to `line`, and returns whether it contains anything but silence.
    fn load(&self, line: &mut [f64; SIZE], sound: &[f32], length: usize, frame: usize) -> bool {
        let start = (frame * HOP).checked_sub(SIZE / 2);
        if let Some(samples) = start.and_then(|start| sound.get(start..)?.first_chunk::<SIZE>()) {
            *line = from_fn(|index| f64::from(samples[index]) * self.window[index]);
        } else {
            let at = |index: usize| mirrored(frame * HOP + index, SIZE / 2, length);
            let sample = |index: usize| sound.get(at(index)).copied().unwrap_or(0.0);
            *line = from_fn(|index| f64::from(sample(index)) * self.window[index]);
        }
        line.iter().any(|value| *value != 0.0)
    }

    /// Writes the log powers of the bands of a frame to `row`, which is empty for a frame past the end.
    fn write(&self, row: &mut [f32], powers: &[f64; BINS]) {
        for (value, power) in row.iter_mut().zip(self.filters.sums(powers)) {
            *value = libm::log10(if power < FLOOR { FLOOR } else { power }) as f32;
        }
    }
}

impl fmt::Debug for Mel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mel")
            .field("bands", &self.bands())
            .field("seconds", &self.seconds)
            .finish_non_exhaustive()
    }
}

/// Returns the index of the sample at `at` − `before` of `length` samples, reflected at both ends as often as needed.
fn mirrored(at: usize, before: usize, length: usize) -> usize {
    let last = length.saturating_sub(1);
    let distance = at.abs_diff(before);
    match distance % (2 * last).max(1) {
        inside if inside <= last => inside,
        beyond => 2 * last - beyond,
    }
}

/// Clamps values too far below the maximum, and scales all of them.
fn scale(values: &mut [f32]) {
    let loudest = values.iter().fold(f32::NEG_INFINITY, |max, value| if *value > max { *value } else { max });
    let least = loudest - DEPTH;
    for value in values {
        let raised = if *value < least { least } else { *value };
        *value = (raised + 4.0) / 4.0;
    }
}
