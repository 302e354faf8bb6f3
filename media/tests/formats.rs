//! Files of several codecs, compared with what FFmpeg decodes from them: see `tests/golden-scripts/make_media.py`.

#![cfg(feature = "audio-formats")]
#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use siskin_audio::AudioSamples;
use siskin_format::ErrorKind;
use siskin_media::audio::{MAX_SAMPLES, decode};

fn read(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../tests/data/media/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Returns the root mean square of the differences.
fn difference(ours: &[f32], theirs: &[f32]) -> f64 {
    let squares = ours.iter().zip(theirs).map(|(a, b)| f64::from(a - b).powi(2));
    (squares.sum::<f64>() / ours.len().min(theirs.len()) as f64).sqrt()
}

#[test]
fn samples_are_those_of_ffmpeg() {
    // Half a step of the 16 bits of the expected samples is 1.5e-5.
    let names =
        ["flac.flac", "flac.ogg", "mp3.mp3", "stereo.mp3", "aac.m4a", "aac.aac", "vorbis.ogg", "vorbis.mka"];
    for name in names {
        let ours = decode(read(name), MAX_SAMPLES).unwrap();
        let theirs = AudioSamples::from_wav(&read(&format!("{name}.wav"))).unwrap();
        // Symphonia does not apply edit lists, so that the delay of an AAC encoder is left.
        let delay = if name == "aac.m4a" { 1024 } else { 0 };
        let error = difference(&ours.samples[delay..], &theirs.samples);
        println!("{name}: {} and {} samples, {error:.2e}", ours.samples.len(), theirs.samples.len());
        assert_eq!(ours.rate, theirs.rate, "{name}");
        // Decoders may disagree by a block of Vorbis about the end.
        assert!(ours.samples.len().abs_diff(theirs.samples.len() + delay) <= 128, "{name}");
        assert!(error < 2e-5, "{name}: {error:e}");
    }
}

#[test]
fn wav_files_have_the_samples_of_the_runtime() {
    let bytes = read("mp3.mp3.wav");
    assert_eq!(decode(bytes.clone(), MAX_SAMPLES).unwrap(), AudioSamples::from_wav(&bytes).unwrap());
}

#[test]
fn opus_is_refused_by_name() {
    for name in ["opus.ogg", "opus.webm"] {
        let error = decode(read(name), MAX_SAMPLES).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}");
        assert!(error.message().contains("Opus"), "{name}: {error}");
    }
}

#[test]
fn other_files_are_not_audio() {
    for bytes in
        [b"<!doctype html><title>404</title>".to_vec(), b"\x89PNG\r\n\x1a\n0000".to_vec(), vec![0; 4096]]
    {
        let error = decode(bytes, MAX_SAMPLES).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.message().contains("FLAC"), "{error}");
    }
}

#[test]
fn the_length_of_compressed_audio_is_bounded() {
    let error = decode(read("flac.flac"), 4799).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    assert_eq!(decode(read("flac.flac"), 4800).unwrap().samples.len(), 4800);
}

#[test]
fn no_samples_are_lost_without_an_error() {
    let whole = read("flac.flac");
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0x55);
    for bytes in [damaged, whole[..middle].to_vec()] {
        let error = decode(bytes, MAX_SAMPLES).map(|audio| audio.samples.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains("of 4800 samples"), "{error}");
    }
}
