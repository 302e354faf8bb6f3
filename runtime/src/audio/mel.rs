//! Log-mel features, as Hugging Face's `WhisperFeatureExtractor` computes them.
//!
//! A frame is 400 samples under a Hann window, centred on every 160th sample; beyond its ends, the sound is mirrored.
//! The power at each frequency is summed to mel bands, of which the logarithm is taken. What lies 80 dB below the
//! loudest of all bands and frames is raised to that, and the result scaled.

use super::RATE;
use super::fft::{Fft, Numbers, SIZE};
use super::filters::{BINS, Filters};
use crate::{Error, Result};
use std::array::from_fn;
use std::f64::consts::TAU;
use std::fmt;

/// Samples from one frame to the next.
const HOP: usize = 160;
/// The least power in a band, so that silence has a logarithm.
const FLOOR: f64 = 1e-10;
/// How far below the loudest a band may lie, as a logarithm.
const DEPTH: f32 = 8.0;

const MOST_SECONDS: usize = 300;

/// Computes features of windows of one length. It holds no state: the same samples give the same features.
///
/// ```
/// use siskin::audio::{Mel, Sound};
///
/// let sound = Sound::from_pcm16(&[0; 3200], 16_000, 1)?;
/// let features = Mel::new(80, 30)?.features(&sound.samples, 0);
/// assert_eq!((features.frames, features.values.len()), (3000, 3000 * 80));
/// # Ok::<(), siskin::Error>(())
/// ```
pub struct Mel {
    seconds: usize,
    window: [f64; SIZE],
    fft: Fft,
    filters: Filters,
}

/// The features of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// The number of frames, a hundred for each second.
    pub frames: usize,
    /// The number of mel bands.
    pub bands: usize,
    /// The numbers, a row of `bands` for each frame.
    pub values: Vec<f32>,
}

impl Mel {
    /// Features of `bands` mel bands (Whisper has 80 or 128) for windows of `seconds` (Whisper has 30).
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) where there are no bands or more than 201, or windows are
    /// empty or longer than 300 seconds.
    pub fn new(bands: usize, seconds: usize) -> Result<Self> {
        if !(1..=BINS).contains(&bands) {
            return Err(Error::argument("bands", format!("{bands} mel bands; there may be 1 to {BINS}")));
        }
        if !(1..=MOST_SECONDS).contains(&seconds) {
            let message = format!("windows of {seconds} seconds; they may have 1 to {MOST_SECONDS}");
            return Err(Error::argument("seconds", message));
        }
        let window = from_fn(|index| 0.5 - 0.5 * libm::cos(TAU * index as f64 / SIZE as f64));
        Ok(Self { seconds, window, fft: Fft::new(), filters: Filters::new(bands) })
    }

    /// The number of mel bands.
    pub fn bands(&self) -> usize {
        self.filters.bands()
    }

    /// The samples of a window.
    pub fn samples(&self) -> usize {
        self.seconds * RATE as usize
    }

    /// The frames of a window.
    pub fn frames(&self) -> usize {
        self.samples() / HOP
    }

    /// The features of the window that begins at sample `from`, at [`RATE`]; after the last sample comes silence.
    ///
    /// What is not finite in the window makes features that are not finite.
    pub fn features(&self, samples: &[f32], from: usize) -> Features {
        let rest = samples.get(from..).unwrap_or_default();
        self.compute(&rest[..rest.len().min(self.samples())], self.samples())
    }

    /// The features of all samples, at [`RATE`], as one window of their length: a frame for every 160 of them.
    ///
    /// What is not finite makes features that are not finite.
    pub fn whole(&self, samples: &[f32]) -> Features {
        self.compute(samples, samples.len())
    }

    /// The features of `sound`, to which silence is added up to `length` samples.
    fn compute(&self, sound: &[f32], length: usize) -> Features {
        let (frames, bands) = (length / HOP, self.bands());
        let mut values = vec![0.0; frames * bands];
        let (mut data, mut spare) = (Numbers::zero(), Numbers::zero());
        // Two frames share a transform, one as its real parts and one as its imaginary ones.
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
        Features { frames, bands, values }
    }

    /// Writes a frame under the window into `line`, and says whether there is anything but silence in it.
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

    /// Writes the logarithms of the bands of a frame into `row`, which is empty for a frame after the last.
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

/// Where the sample `at` − `before` of `length` ones is, mirrored at both ends as often as needed.
fn mirrored(at: usize, before: usize, length: usize) -> usize {
    let last = length.saturating_sub(1);
    let distance = at.abs_diff(before);
    match distance % (2 * last).max(1) {
        inside if inside <= last => inside,
        beyond => 2 * last - beyond,
    }
}

/// Raises what is too far below the loudest, and scales everything.
fn scale(values: &mut [f32]) {
    let loudest =
        values.iter().fold(f32::NEG_INFINITY, |most, value| if *value > most { *value } else { most });
    let least = loudest - DEPTH;
    for value in values {
        let raised = if *value < least { least } else { *value };
        *value = (raised + 4.0) / 4.0;
    }
}
