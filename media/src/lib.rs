//! Decodes media files for models.
//!
//! [`audio::decode`] turns the bytes of an audio file into [`AudioSamples`](siskin_audio::AudioSamples): WAV files by
//! the decoder of `siskin-audio`, which is the same on every machine, and MP3, AAC, FLAC and Vorbis by Symphonia, if
//! the feature `audio-formats` is built.
//!
//! ```
//! let wav = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\0\0\0\0";
//! let audio = siskin_media::audio::decode(wav.to_vec(), siskin_media::audio::MAX_SAMPLES)?;
//! assert_eq!((audio.rate, audio.samples.len()), (16_000, 0));
//! # Ok::<(), siskin_format::Error>(())
//! ```

pub mod audio;
#[cfg(feature = "audio-formats")]
mod symphonia_decoder;
