//! WAVE (RIFF) reader.
//!
//! The format: `RIFF`, a length, `WAVE`, then chunks of a name, a length and that many bytes, padded to an even length.
//! `fmt ` describes the samples in `data` and precedes it; all other chunks are skipped. The length after `RIFF` is
//! ignored, as writers that cannot seek leave it wrong.

use super::{AudioSamples, room_for};
use siskin_format::{Error, Result};

const PCM: u16 = 1;
const FLOAT: u16 = 3;
const EXTENSIBLE: u16 = 0xFFFE;
/// The rest of the sub-format GUID of an extensible format, after the 16 bits of the codec.
const CODEC_TAIL: [u8; 14] = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71];
/// The length of a `data` chunk that was unknown to its writer.
const UNKNOWN: u32 = u32::MAX;

const FORMAT: &str = "wav.fmt";
const DATA: &str = "wav.data";

/// The encoding of samples.
#[derive(Clone, Copy)]
enum Coding {
    Unsigned8,
    Signed16,
    Signed24,
    Signed32,
    Float32,
    Float64,
}

impl Coding {
    fn bytes(self) -> usize {
        match self {
            Self::Unsigned8 => 1,
            Self::Signed16 => 2,
            Self::Signed24 => 3,
            Self::Signed32 | Self::Float32 => 4,
            Self::Float64 => 8,
        }
    }
}

/// Returns whether a `data` chunk extends to the end of the file because its length was unknown: the writer was a pipe,
/// or never came back to overwrite the initial zero.
fn is_unknown(claimed: u32, body: &[u8]) -> bool {
    let is_chunk = || {
        // Shorter than a chunk header: a truncated chunk.
        let Some(([name @ .., a, b, c, d], rest)) = body.split_first_chunk::<8>() else { return true };
        let length = u32::from_le_bytes([*a, *b, *c, *d]);
        name.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ')
            && usize::try_from(length).is_ok_and(|length| length <= rest.len())
    };
    claimed == UNKNOWN || claimed == 0 && !is_chunk()
}

struct Format {
    coding: Coding,
    channels: u16,
    rate: u32,
}

/// Parses the bytes of a file.
pub(super) fn parse(bytes: &[u8]) -> Result<AudioSamples> {
    let mut rest = after_header(bytes)?;
    let mut format = None;
    let mut index = 0_usize;
    while let Some((head, body)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, length @ ..] = *head;
        let claimed = u32::from_le_bytes(length);
        let chunk = match (&[a, b, c, d], &format) {
            (b"data", None) => {
                return Err(Error::corrupt(FORMAT, "must precede the `data` chunk"));
            }
            (b"data", Some(format)) if is_unknown(claimed, body) => return decode(format, body),
            (b"data", Some(format)) => return decode(format, take(body, claimed, DATA)?),
            (b"fmt ", Some(_)) => {
                return Err(Error::corrupt(FORMAT, "occurs twice"));
            }
            (b"fmt ", None) => {
                let chunk = take(body, claimed, FORMAT)?;
                format = Some(read_format(chunk)?);
                chunk
            }
            _ => take(body, claimed, &format!("wav.chunks[{index}]"))?,
        };
        rest = body.get(chunk.len().next_multiple_of(2)..).unwrap_or_default();
        index += 1;
    }
    let missing = if format.is_some() { DATA } else { FORMAT };
    Err(Error::corrupt(missing, "missing; is the file complete?"))
}

/// Decodes raw 16-bit PCM and mixes the channels to their mean.
pub(super) fn headerless(bytes: &[u8], rate: u32, channels: u16) -> Result<AudioSamples> {
    if rate == 0 {
        return Err(Error::argument("pcm.rate", "expected the samples per second, got 0"));
    }
    if channels == 0 {
        return Err(Error::argument("pcm.channels", "expected at least 1, got 0"));
    }
    if !bytes.len().is_multiple_of(2 * usize::from(channels)) {
        let message =
            format!("{} bytes are not a multiple of 16-bit samples in {channels} channels", bytes.len());
        return Err(Error::argument("pcm.samples", message));
    }
    decode(&Format { coding: Coding::Signed16, channels, rate }, bytes)
}

/// Returns the bytes after `RIFF`, the length and `WAVE`.
fn after_header(bytes: &[u8]) -> Result<&[u8]> {
    let wrong = |message: &str| Err(Error::corrupt("wav.header", message));
    let Some((head, rest)) = bytes.split_first_chunk::<12>() else {
        return wrong("shorter than the 12 bytes of a WAVE header");
    };
    match (&head[..4], &head[8..]) {
        (b"RIFF", b"WAVE") => Ok(rest),
        (b"RF64" | b"RIFX" | b"BW64", b"WAVE") => {
            let message = "big-endian files are not supported; convert the file to little-endian `RIFF`";
            Err(Error::unsupported("wav.header", message))
        }
        _ => wrong("not a WAV file: `RIFF` and `WAVE` are missing"),
    }
}

/// Returns the first `claimed` bytes of `body`.
fn take<'a>(body: &'a [u8], claimed: u32, place: &str) -> Result<&'a [u8]> {
    let chunk = usize::try_from(claimed).ok().and_then(|claimed| body.get(..claimed));
    chunk.ok_or_else(|| {
        let message =
            format!("claims {claimed} bytes, but only {} are left; is the file complete?", body.len());
        Error::corrupt(place, message)
    })
}

fn read_format(chunk: &[u8]) -> Result<Format> {
    let Some((head, rest)) = chunk.split_first_chunk::<16>() else {
        return Err(Error::corrupt(FORMAT, format!("expected at least 16 bytes, got {}", chunk.len())));
    };
    let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (mut codec, channels, frame, bits) = (short(0), short(2), short(12), short(14));
    let rate = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if codec == EXTENSIBLE {
        codec = extended_codec(rest)?;
    }
    let coding = coding(codec, bits)?;
    let wrong = |field: &str, message: String| Err(Error::corrupt(format!("{FORMAT}.{field}"), message));
    if channels == 0 {
        return wrong("channels", "expected at least 1, got 0".to_owned());
    }
    if rate == 0 {
        return wrong("rate", "expected the samples per second, got 0".to_owned());
    }
    let expected = usize::from(channels) * coding.bytes();
    if usize::from(frame) != expected {
        let message = format!("{frame} is not {expected}, the size of {channels} samples of {bits} bits");
        return wrong("block_align", message);
    }
    Ok(Format { coding, channels, rate })
}

/// Returns the codec in the sub-format of an extensible format.
fn extended_codec(rest: &[u8]) -> Result<u16> {
    let place = "wav.fmt.sub_format";
    // Skips the size of the extension, the valid bits (the most significant ones), and the channel mask.
    let Some((name, _)) = rest.get(8..).and_then(<[u8]>::split_first_chunk::<16>) else {
        return Err(Error::corrupt(place, "an extensible format needs at least 40 bytes"));
    };
    let [low, high, tail @ ..] = *name;
    if tail != CODEC_TAIL {
        return Err(Error::unsupported(place, "neither PCM nor float; convert the file to 16-bit PCM"));
    }
    Ok(u16::from_le_bytes([low, high]))
}

fn coding(codec: u16, bits: u16) -> Result<Coding> {
    let reject = |field: &str, message: String| {
        let message = format!("{message} is not supported; convert the file to 16-bit PCM");
        Err(Error::unsupported(format!("{FORMAT}.{field}"), message))
    };
    match (codec, bits) {
        (PCM, 8) => Ok(Coding::Unsigned8),
        (PCM, 16) => Ok(Coding::Signed16),
        (PCM, 24) => Ok(Coding::Signed24),
        (PCM, 32) => Ok(Coding::Signed32),
        (FLOAT, 32) => Ok(Coding::Float32),
        (FLOAT, 64) => Ok(Coding::Float64),
        (PCM, _) => reject("bits", format!("{bits}-bit PCM")),
        (FLOAT, _) => reject("bits", format!("{bits}-bit float")),
        _ => reject("codec", format!("codec {codec:#06x}")),
    }
}

fn decode(format: &Format, data: &[u8]) -> Result<AudioSamples> {
    let channels = usize::from(format.channels);
    let frame = channels * format.coding.bytes();
    if !data.len().is_multiple_of(frame) {
        let message = format!("{} bytes are not a multiple of the frame size {frame}", data.len());
        return Err(Error::corrupt(DATA, message));
    }
    let samples = match format.coding {
        Coding::Unsigned8 => mix(data, channels, |[byte]: [u8; 1]| (f32::from(byte) - 128.0) / 128.0),
        Coding::Signed16 => mix(data, channels, |bytes| f32::from(i16::from_le_bytes(bytes)) / 32768.0),
        Coding::Signed24 => mix(data, channels, |[a, b, c]: [u8; 3]| whole([0, a, b, c])),
        Coding::Signed32 => mix(data, channels, whole),
        Coding::Float32 => mix(data, channels, f32::from_le_bytes),
        Coding::Float64 => mix(data, channels, |bytes| f64::from_le_bytes(bytes) as f32),
    }?;
    Ok(AudioSamples { rate: format.rate, samples })
}

/// Converts a 32-bit integer sample to f32, with full scale 1.
fn whole(bytes: [u8; 4]) -> f32 {
    (f64::from(i32::from_le_bytes(bytes)) / 2_147_483_648.0) as f32
}

/// Returns the mean of the channels of each sample frame in `data`, which holds a whole number of frames.
fn mix<const N: usize>(data: &[u8], channels: usize, sample: impl Fn([u8; N]) -> f32) -> Result<Vec<f32>> {
    let (numbers, _) = data.as_chunks::<N>();
    let mut samples = room_for(numbers.len() / channels, DATA)?;
    let mixed = numbers.chunks_exact(channels).map(|moment| match moment {
        [one] => sample(*one),
        _ => (moment.iter().map(|bytes| f64::from(sample(*bytes))).sum::<f64>() / channels as f64) as f32,
    });
    samples.extend(mixed);
    match samples.iter().position(|sample| !sample.is_finite()) {
        None => Ok(samples),
        Some(at) => {
            let place = format!("{DATA}.samples[{at}]");
            Err(Error::corrupt(place, "contains NaN or infinity; convert the file again"))
        }
    }
}
