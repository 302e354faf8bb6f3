//! Audio input: WAV files, resampling and log-mel features.
//!
//! Models of speech take log-mel spectrograms: the energies of frequency bands, on a logarithmic scale, a hundred times
//! per second. This crate makes them from sound of any sample rate, with the values that Transformers computes.
//!
//! - [`AudioSamples`] is one channel at some sample rate, decoded from a WAV file or from PCM.
//!   [`AudioSamples::resampled`] converts it to [`RATE`] with a windowed sinc filter.
//! - [`Mel`] turns windows of samples into features.
//! - [`WindowFeatures`] are the features of a window, frame by frame, as Whisper-like encoders take them.
//!
//! ```
//! use siskin_audio::{AudioSamples, Mel, RATE};
//!
//! let audio = AudioSamples::from_pcm16(&[0; 4410], 44_100, 1)?.resampled()?;
//! let features = Mel::new(80, 30)?.features(&audio.samples, 0);
//! assert_eq!((audio.rate, features.bands), (RATE, 80));
//! # Ok::<(), siskin_format::Error>(())
//! ```
//!
//! Results are bit-identical on every machine: sums have a fixed order, and sines and logarithms come from `libm`.
//! Files are untrusted: a header that promises more than there is, or a rate of zero, is an error that names the field.

mod fft;
mod filters;
mod mel;
mod resample;
#[cfg(test)]
mod tests;
mod wav;

pub use mel::{Mel, WindowFeatures};
pub use resample::resample;

use siskin_format::{CargoFeature, Error, ErrorKind, Result};

/// The cargo feature of this crate, which `siskin` calls `audio`.
pub const FEATURE: CargoFeature = CargoFeature { name: "audio", is_there: cfg!(feature = "decoder") };

/// The sample rate of models, in Hz.
pub const RATE: u32 = 16_000;

/// Mono audio.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioSamples {
    /// The sample rate, in Hz.
    pub rate: u32,
    /// The samples, all finite; full scale is −1 to 1.
    pub samples: Vec<f32>,
}

impl AudioSamples {
    /// Decodes a WAV file: PCM of 8, 16, 24 or 32 bits or floats of 32 or 64, with any number of channels, which are
    /// mixed to their mean.
    ///
    /// A `data` chunk that claims 4294967295 bytes, as writers to a pipe do, extends to the end of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] with the chunk and field that is invalid; [`ErrorKind::Unsupported`] for other codecs;
    /// [`ErrorKind::Memory`] if the samples cannot be allocated.
    pub fn from_wav(bytes: &[u8]) -> Result<Self> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        wav::parse(bytes)
    }

    /// Decodes raw little-endian 16-bit PCM with `channels` interleaved channels.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the rate or the number of channels is zero, or the bytes are not a whole number of
    /// sample frames; [`ErrorKind::Memory`] if the samples cannot be allocated.
    pub fn from_pcm16(bytes: &[u8], rate: u32, channels: u16) -> Result<Self> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        wav::headerless(bytes, rate, channels)
    }

    /// Resamples to [`RATE`].
    ///
    /// # Errors
    /// Those of [`resample`].
    pub fn resampled(self) -> Result<Self> {
        if self.rate == RATE {
            return Ok(self);
        }
        Ok(Self { rate: RATE, samples: resample(&self.samples, self.rate)? })
    }
}

/// Returns an empty list with capacity for `length` samples.
fn room_for(length: usize, place: &str) -> Result<Vec<f32>> {
    let mut samples = Vec::new();
    samples.try_reserve_exact(length).map_err(|_| {
        let message = format!("cannot allocate memory for {length} samples; use a shorter recording");
        Error::new(ErrorKind::Memory, place, message)
    })?;
    Ok(samples)
}
