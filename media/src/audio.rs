//! Audio files.

use siskin_audio::AudioSamples;
#[cfg(not(feature = "audio-formats"))]
use siskin_format::Error;
use siskin_format::Result;

/// A limit on the samples of a file that suits one user's machine: 1 GiB of memory, 93 minutes at 48 kHz.
pub const MAX_SAMPLES: usize = 1 << 28;

/// Decodes an audio file, whose format is recognized by its content, and mixes its channels to their mean.
///
/// Compressed files may be small and yet hours long: one of more than `max_samples` samples per channel is an error.
/// The samples of WAV files are the same on every machine; those of compressed files may differ in their last bits.
/// The delay of an AAC encoder, 1024 samples or so, is left at the start.
///
/// # Errors
/// Those of [`AudioSamples::from_wav`] for WAV files. For others, [`ErrorKind`](siskin_format::ErrorKind)
/// `Unsupported` if the format or codec is not one that is built in, `Corrupt` with the time of the packet that cannot
/// be decoded, `Argument` if the audio is too long, and `Memory` if the samples cannot be allocated.
pub fn decode<B: AsRef<[u8]> + Send + Sync + 'static>(file: B, max_samples: usize) -> Result<AudioSamples> {
    let bytes = file.as_ref();
    if is_wav(bytes) {
        return AudioSamples::from_wav(bytes);
    }
    #[cfg(feature = "audio-formats")]
    return crate::symphonia_decoder::decode(file, max_samples);
    #[cfg(not(feature = "audio-formats"))]
    {
        let _ = max_samples;
        // The error of a file that is not WAV, and what else it may be.
        AudioSamples::from_wav(bytes).map_err(|error| {
            let message = format!(
                "{}; for MP3, M4A, FLAC and Ogg files, build with the feature `audio-formats`",
                error.message()
            );
            Error::new(error.kind(), error.location(), message)
        })
    }
}

/// Returns true for all that `AudioSamples::from_wav` has its own errors for.
fn is_wav(bytes: &[u8]) -> bool {
    bytes.len() < 4 || [b"RIFF", b"RIFX", b"RF64", b"BW64"].iter().any(|magic| bytes.starts_with(*magic))
}
