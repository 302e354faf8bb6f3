//! Sound for models that listen: WAVE files, one rate for all, and log-mel features.
//!
//! A [`Sound`] is one channel at some rate. [`Sound::resampled`] brings it to [`RATE`], and [`Mel`] turns a window of
//! it into the [`Features`] that encoders of the Whisper kind read.
//!
//! Everything here has one result on every machine: sums have a fixed order, and sines and logarithms come from
//! `libm`.

mod fft;
mod filters;
mod mel;
mod resample;
#[cfg(test)]
mod tests;
mod wav;

pub use mel::{Features, Mel};
pub use resample::resample;

use crate::{Error, ErrorKind, Result, features};

/// Samples in a second, as models want them.
pub const RATE: u32 = 16_000;

/// One channel of sound.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// Samples in a second.
    pub rate: u32,
    /// The samples, all finite; full scale is −1 to 1.
    pub samples: Vec<f32>,
}

impl Sound {
    /// The sound of a WAVE file's bytes: PCM of 8, 16, 24 or 32 bits or floats of 32 or 64, in any number of
    /// channels, which are mixed to their mean.
    ///
    /// A `data` chunk that claims 4294967295 bytes, as writers to a pipe do, goes to the end.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] with the chunk and field that is wrong; [`ErrorKind::Unsupported`] for other codecs;
    /// [`ErrorKind::Memory`] where there is too little for the samples.
    pub fn from_wav(bytes: &[u8]) -> Result<Self> {
        if !features::AUDIO.is_there {
            return Err(features::AUDIO.missing());
        }
        wav::parse(bytes)
    }

    /// The sound of little-endian 16-bit samples without a header, `channels` after one another for each moment.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] where rate or channels are zero, or the bytes are no whole number of moments;
    /// [`ErrorKind::Memory`] where there is too little for the samples.
    pub fn from_pcm16(bytes: &[u8], rate: u32, channels: u16) -> Result<Self> {
        if !features::AUDIO.is_there {
            return Err(features::AUDIO.missing());
        }
        wav::headerless(bytes, rate, channels)
    }

    /// The same sound at [`RATE`].
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

/// An empty list with room for `length` samples.
fn room_for(length: usize, place: &str) -> Result<Vec<f32>> {
    let mut samples = Vec::new();
    samples.try_reserve_exact(length).map_err(|_| {
        let message = format!("no memory for {length} samples; use a shorter recording");
        Error::new(ErrorKind::Memory, place, message)
    })?;
    Ok(samples)
}
