//! Compressed audio files, decoded by Symphonia.

use siskin_audio::AudioSamples;
use siskin_format::{Error, ErrorKind, Result};
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_FLAC, CODEC_ID_OPUS};
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatReader, Track, TrackType};
use symphonia::core::io::MediaSourceStream;

const LOCATION: &str = "audio";
const FORMATS: &str = "WAV, FLAC, MP3, M4A and ADTS with AAC, Ogg and Matroska with Vorbis or FLAC";

/// Decodes the default audio track of a file.
pub(crate) fn decode<B: AsRef<[u8]> + Send + Sync + 'static>(
    file: B,
    max_samples: usize,
) -> Result<AudioSamples> {
    // A decoder that panics has met a damaged file, and its state is dropped here.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut format = open(file)?;
        let mut mono = Mono { rate: None, samples: Vec::new(), interleaved: Vec::new(), max_samples };
        // A chained Ogg file has one track after another.
        while decode_track(&mut *format, &mut mono)? == TrackEnd::AnotherFollows {}
        mono.finish()
    }));
    outcome.unwrap_or_else(|_| Err(Error::corrupt(LOCATION, "the decoder failed; is the file damaged?")))
}

/// Recognizes the format of a file.
fn open<B: AsRef<[u8]> + Send + Sync + 'static>(file: B) -> Result<Box<dyn FormatReader>> {
    let stream = MediaSourceStream::new(Box::new(Cursor::new(file)), Default::default());
    let probe = symphonia::default::get_probe();
    probe.probe(&Hint::new(), stream, Default::default(), Default::default()).map_err(|error| match error {
        SymphoniaError::Unsupported(_) | SymphoniaError::IoError(_) => Error::unsupported(
            LOCATION,
            format!("not recognized as an audio file; these formats are supported: {FORMATS}"),
        ),
        error => Error::corrupt(LOCATION, error.to_string()),
    })
}

#[derive(PartialEq, Eq)]
enum TrackEnd {
    AnotherFollows,
    File,
}

/// Appends the samples of the default audio track.
fn decode_track(format: &mut dyn FormatReader, mono: &mut Mono) -> Result<TrackEnd> {
    let (mut decoder, track) = make_decoder(format)?;
    // Readers skip what they cannot read of FLAC files, which say how many samples they have.
    let expected = mono.samples.len().saturating_add(flac_length(format, track));
    loop {
        let packet = match format.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) if mono.samples.len() < expected => {
                let message = format!(
                    "{} of {expected} samples can be read; is the file complete?",
                    mono.samples.len()
                );
                return Err(Error::corrupt(LOCATION, message));
            }
            Ok(None) => return Ok(TrackEnd::File),
            Err(SymphoniaError::ResetRequired) => return Ok(TrackEnd::AnotherFollows),
            Err(error) => return Err(mono.failed(&error)),
        };
        if packet.track_id == track {
            let decoded = decoder.decode(&packet).map_err(|error| mono.failed(&error))?;
            mono.append(&decoded)?;
        }
    }
}

/// Returns the length that a FLAC track claims, in samples of a channel; 0 if it claims none.
fn flac_length(format: &dyn FormatReader, track: u32) -> usize {
    let is_flac = |track: &&Track| {
        let parameters = track.codec_params.as_ref().and_then(|parameters| parameters.audio());
        parameters.is_some_and(|parameters| parameters.codec == CODEC_ID_FLAC)
    };
    let track = format.tracks().iter().find(|candidate| candidate.id == track).filter(is_flac);
    // A length that cannot be addressed cannot be reached either.
    track.and_then(|track| track.num_frames).map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX))
}

/// Returns a decoder for the default audio track, and the track's number.
fn make_decoder(format: &dyn FormatReader) -> Result<(Box<dyn AudioDecoder>, u32)> {
    let track = format.default_track(TrackType::Audio);
    let track = track.ok_or_else(|| Error::unsupported(LOCATION, "the file has no audio track"))?;
    let unsupported = || {
        let message = format!("the codec is not supported; these formats are: {FORMATS}");
        Error::unsupported(LOCATION, message)
    };
    let parameters =
        track.codec_params.as_ref().and_then(|parameters| parameters.audio()).ok_or_else(unsupported)?;
    if parameters.codec == CODEC_ID_OPUS {
        return Err(Error::unsupported(LOCATION, "Opus is not supported; convert the file to FLAC or WAV"));
    }
    let codecs = symphonia::default::get_codecs();
    let decoder = codecs.make_audio_decoder(parameters, &AudioDecoderOptions::default()).map_err(
        |error| match error {
            SymphoniaError::Unsupported(_) => unsupported(),
            error => Error::corrupt(LOCATION, error.to_string()),
        },
    )?;
    Ok((decoder, track.id))
}

/// The mean of the channels of all packets so far.
struct Mono {
    /// The sample rate of the first packet.
    rate: Option<u32>,
    samples: Vec<f32>,
    /// The samples of the latest packet.
    interleaved: Vec<f32>,
    max_samples: usize,
}

impl Mono {
    fn append(&mut self, packet: &GenericAudioBufferRef<'_>) -> Result<()> {
        let (rate, channels) = (packet.spec().rate(), packet.num_planes());
        if packet.is_empty() || channels == 0 {
            return Ok(());
        }
        if self.rate.is_some_and(|first| first != rate) {
            let message = format!("the sample rate changes to {rate} Hz {}", self.time());
            return Err(Error::unsupported(LOCATION, message));
        }
        self.rate = Some(rate);
        if self.max_samples.saturating_sub(self.samples.len()) < packet.frames() {
            let message =
                format!("longer than {} s; split the file", self.max_samples / rate.max(1) as usize);
            return Err(Error::argument(LOCATION, message));
        }
        if self.samples.try_reserve(packet.frames()).is_err() {
            let message = format!("cannot allocate memory for the samples {}", self.time());
            return Err(Error::new(ErrorKind::Memory, LOCATION, message));
        }
        packet.copy_to_vec_interleaved(&mut self.interleaved);
        // As for WAV files: the sum in the order of the channels, divided by their number.
        let mean = |frame: &[f32]| frame.iter().sum::<f32>() / channels as f32;
        let from = self.samples.len();
        self.samples.extend(self.interleaved.chunks_exact(channels).map(mean));
        match self.samples[from..].iter().all(|sample| sample.is_finite()) {
            true => Ok(()),
            false => Err(Error::corrupt(LOCATION, format!("NaN or infinity {}", self.time()))),
        }
    }

    fn failed(&self, error: &SymphoniaError) -> Error {
        Error::corrupt(LOCATION, format!("{error} {}", self.time()))
    }

    /// Returns the place of the next packet, for messages.
    fn time(&self) -> String {
        let seconds = self.samples.len() as f64 / f64::from(self.rate.unwrap_or(1).max(1));
        format!("at {seconds:.3} s")
    }

    fn finish(self) -> Result<AudioSamples> {
        match self.rate {
            Some(rate) if rate > 0 => Ok(AudioSamples { rate, samples: self.samples }),
            _ => Err(Error::corrupt(LOCATION, "the file has no samples")),
        }
    }
}
