//! WAV files and resampling, tested against expected values; `tests/tests/audio.rs` compares with other
//! implementations.

use super::*;
use std::f64::consts::TAU;

/// Returns a chunk: its name, its length, its bytes and padding to an even length.
fn chunk(name: &str, bytes: &[u8]) -> Vec<u8> {
    let padding = vec![0; bytes.len() % 2];
    [name.as_bytes(), &(bytes.len() as u32).to_le_bytes(), bytes, &padding].concat()
}

fn format(codec: u16, channels: u16, rate: u32, frame: u16, bits: u16) -> Vec<u8> {
    let [codec, channels, frame, bits] = [codec, channels, frame, bits].map(u16::to_le_bytes);
    chunk("fmt ", &[&codec[..], &channels, &rate.to_le_bytes(), &[0; 4], &frame, &bits].concat())
}

fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
    [b"RIFF\0\0\0\0WAVE".as_slice(), &chunks.concat()].concat()
}

/// Returns the place and the kind of the error.
fn rejection(bytes: &[u8]) -> (String, ErrorKind) {
    let error = AudioSamples::from_wav(bytes).unwrap_err();
    (error.location().to_owned(), error.kind())
}

#[test]
fn codings_have_their_scale() {
    let rows: [(u16, u16, &[u8], &[f32]); 6] = [
        (1, 8, &[0, 128, 192], &[-1.0, 0.0, 0.5]),
        (1, 16, &[0, 128, 0, 64, 255, 255], &[-1.0, 0.5, -1.0 / 32768.0]),
        (1, 24, &[0, 0, 128, 0, 0, 64, 255, 255, 255], &[-1.0, 0.5, -1.0 / 8_388_608.0]),
        (1, 32, &[0, 0, 0, 128, 0, 0, 0, 64], &[-1.0, 0.5]),
        (3, 32, &[0, 0, 128, 63, 0, 0, 0, 192], &[1.0, -2.0]),
        (3, 64, &[0, 0, 0, 0, 0, 0, 240, 63], &[1.0]),
    ];
    for (codec, bits, data, expected) in rows {
        let format = format(codec, 1, 7, bits / 8, bits);
        let sound = AudioSamples::from_wav(&file(&[format, chunk("data", data)])).unwrap();
        assert_eq!(sound, AudioSamples { rate: 7, samples: expected.to_vec() }, "codec {codec}, {bits} bits");
    }
}

#[test]
fn channels_are_mixed_and_other_chunks_passed_over() {
    let data = [1_i16, 2, 6, -4, -4, 5].map(|sample| (sample * 1024).to_le_bytes()).concat();
    let chunks =
        [chunk("LIST", b"odd"), format(1, 3, 48_000, 6, 16), chunk("JUNK", b"x"), chunk("data", &data)];
    let sound = AudioSamples::from_wav(&file(&chunks)).unwrap();
    assert_eq!(sound.samples, [3.0 / 32.0, -1.0 / 32.0]);
    assert_eq!(AudioSamples::from_pcm16(&data, 48_000, 3).unwrap(), sound);
    let loud = [i32::MAX.to_le_bytes(); 3].concat();
    let sound = AudioSamples::from_wav(&file(&[format(1, 3, 1, 12, 32), chunk("data", &loud)])).unwrap();
    assert_eq!(sound.samples, [1.0]);
}

#[test]
fn a_length_that_the_writer_did_not_know_goes_to_the_end() {
    let mut bytes = file(&[format(1, 1, 8_000, 2, 16), chunk("data", &[0, 64, 0, 32, 0, 64, 0, 32])]);
    let length = bytes.len() - 12;
    for unknown in [u32::MAX, 0] {
        bytes[length..length + 4].copy_from_slice(&unknown.to_le_bytes());
        assert_eq!(AudioSamples::from_wav(&bytes).unwrap().samples, [0.5, 0.25, 0.5, 0.25]);
    }
}

#[test]
fn an_empty_sound_is_a_sound() {
    let empty = [format(1, 2, 8_000, 4, 16), chunk("data", &[]), chunk("LIST", &[7; 12])];
    for chunks in [&empty[..2], &empty[..]] {
        let sound = AudioSamples::from_wav(&file(chunks)).unwrap().resampled().unwrap();
        assert_eq!(sound, AudioSamples { rate: RATE, samples: vec![] });
    }
}

#[test]
fn what_is_wrong_is_named() {
    use ErrorKind::{Corrupt, Unsupported};
    let mono = || format(1, 1, 8_000, 2, 16);
    let data = || chunk("data", &[0; 4]);
    let claiming = |name: &str, length: u32| [name.as_bytes(), &length.to_le_bytes(), &[0; 4]].concat();
    let extensible = |tail: &[u8]| {
        let mut chunk = format(0xFFFE, 1, 8_000, 2, 16);
        chunk.extend_from_slice(tail);
        chunk[4] += tail.len() as u8;
        chunk
    };
    let rows = [
        (vec![], "wav.header", Corrupt),
        (b"RIFF\0\0\0\0AVI ".to_vec(), "wav.header", Corrupt),
        (b"RF64\0\0\0\0WAVE".to_vec(), "wav.header", Unsupported),
        (file(&[]), "wav.fmt", Corrupt),
        (file(&[data()]), "wav.fmt", Corrupt),
        (file(&[mono(), mono(), data()]), "wav.fmt", Corrupt),
        (file(&[chunk("fmt ", &[0; 15]), data()]), "wav.fmt", Corrupt),
        (file(&[claiming("fmt ", 16)]), "wav.fmt", Corrupt),
        (file(&[format(1, 0, 8_000, 0, 16), data()]), "wav.fmt.channels", Corrupt),
        (file(&[format(1, 1, 0, 2, 16), data()]), "wav.fmt.rate", Corrupt),
        (file(&[format(1, 2, 8_000, 2, 16), data()]), "wav.fmt.block_align", Corrupt),
        (file(&[format(1, 65_535, 8_000, 65_534, 16), data()]), "wav.fmt.block_align", Corrupt),
        (file(&[format(1, 1, 8_000, 2, 12), data()]), "wav.fmt.bits", Unsupported),
        (file(&[format(3, 1, 8_000, 2, 16), data()]), "wav.fmt.bits", Unsupported),
        (file(&[format(7, 1, 8_000, 1, 8), data()]), "wav.fmt.codec", Unsupported),
        (file(&[extensible(&[0; 8]), data()]), "wav.fmt.sub_format", Corrupt),
        (file(&[extensible(&[1; 24]), data()]), "wav.fmt.sub_format", Unsupported),
        (file(&[mono()]), "wav.data", Corrupt),
        (file(&[mono(), claiming("data", 6)]), "wav.data", Corrupt),
        (file(&[mono(), claiming("data", u32::MAX - 1)]), "wav.data", Corrupt),
        (file(&[mono(), chunk("data", &[0; 3])]), "wav.data", Corrupt),
        (file(&[mono(), claiming("LIST", 5)]), "wav.chunks[1]", Corrupt),
        (
            file(&[format(3, 1, 8_000, 4, 32), chunk("data", &[0, 0, 0, 0, 0, 0, 128, 255])]),
            "wav.data.samples[1]",
            Corrupt,
        ),
        (
            file(&[format(3, 1, 8_000, 8, 64), chunk("data", &f64::MAX.to_le_bytes())]),
            "wav.data.samples[0]",
            Corrupt,
        ),
    ];
    for (bytes, place, kind) in rows {
        assert_eq!(rejection(&bytes), (place.to_owned(), kind));
    }
    let place = |bytes: &[u8], rate, channels| {
        AudioSamples::from_pcm16(bytes, rate, channels).unwrap_err().location().to_owned()
    };
    assert_eq!(place(&[0; 4], 0, 1), "pcm.rate");
    assert_eq!(place(&[0; 4], 1, 0), "pcm.channels");
    assert_eq!(place(&[0; 6], 1, 2), "pcm.samples");
}

fn sine(frequency: f64, rate: u32, length: usize) -> Vec<f32> {
    (0..length).map(|at| (TAU * frequency * at as f64 / f64::from(rate)).sin() as f32).collect()
}

/// Returns the largest difference of two signals away from their ends.
fn difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    let inside = 1000..left.len() - 1000;
    left[inside.clone()].iter().zip(&right[inside]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn a_tone_stays_what_it_is() {
    let rates = [
        1_000, 4_000, 8_000, 11_025, 12_000, 15_999, 16_000, 16_001, 22_050, 24_000, 32_000, 37_123, 44_100,
        48_000, 88_200, 96_000, 176_400, 192_000, 383_999, 384_000,
    ];
    for rate in rates {
        let tone = if rate < 4_000 { 200.0 } else { 1_000.0 };
        let output = resample(&sine(tone, rate, rate as usize), rate).unwrap();
        let max_error = difference(&output, &sine(tone, RATE, RATE as usize));
        println!("{tone} Hz at {rate}: {max_error:.1e}");
        assert!(max_error < 3e-4, "{rate}: {max_error:e}");
    }
}

#[test]
fn what_can_be_kept_is_kept_and_the_rest_is_gone() {
    for rate in [17_003, 22_050, 44_100, 48_000, 96_000, 192_000, 383_999] {
        let kept = resample(&sine(7_100.0, rate, rate as usize), rate).unwrap();
        let max_error = difference(&kept, &sine(7_100.0, RATE, RATE as usize));
        assert!(max_error < 1e-3, "7.1 kHz at {rate}: {max_error:e}");
        for frequency in [8_010.0, 8_400.0, 11_000.0, 15_000.0, 16_000.0, 23_000.0, 90_000.0] {
            if frequency < f64::from(rate) / 2.0 {
                let output = resample(&sine(frequency, rate, rate as usize), rate).unwrap();
                let max_error = difference(&output, &vec![0.0; output.len()]);
                assert!(max_error < 3e-4, "{frequency} Hz at {rate}: {max_error:e}");
            }
        }
    }
}

#[test]
fn a_higher_rate_brings_no_images() {
    for rate in [8_000, 11_025, 12_000] {
        let tone = 0.44 * f64::from(rate);
        let output = resample(&sine(tone, rate, rate as usize), rate).unwrap();
        let max_error = difference(&output, &sine(tone, RATE, RATE as usize));
        assert!(max_error < 1e-3, "{tone} Hz at {rate}: {max_error:e}");
    }
}

#[test]
fn levels_lengths_and_short_sounds() {
    for (rate, length, expected) in
        [(44_100, 44_100, 16_000), (48_000, 1, 1), (8_000, 3, 6), (384_000, 25, 2)]
    {
        assert_eq!(resample(&vec![0.5; length], rate).unwrap().len(), expected);
    }
    for rate in [8_000, 15_999, 44_100, 48_000] {
        let output = resample(&vec![0.5; rate as usize], rate).unwrap();
        assert!(difference(&output, &vec![0.5; output.len()]) < 1e-6, "{rate}");
    }
    assert_eq!(resample(&[0.1, 0.2], RATE).unwrap(), [0.1, 0.2]);
    assert!(resample(&[], 8_000).unwrap().is_empty());
    for rate in [0, 999, 384_001, u32::MAX] {
        assert_eq!(resample(&[0.0], rate).unwrap_err().kind(), ErrorKind::Argument);
    }
}

#[test]
fn windows_begin_where_they_are_asked_to() {
    let mel = Mel::new(20, 2).unwrap();
    let samples: Vec<_> = sine(440.0, RATE, 80_000).iter().enumerate().map(|(at, s)| s * at as f32).collect();
    assert_eq!((mel.frames(), mel.samples(), mel.bands()), (200, 32_000, 20));
    assert_eq!(mel.features(&samples, 7_777), mel.features(&samples[7_777..], 0));
    assert_eq!(mel.features(&samples, 1_000), mel.features(&samples[..33_000], 1_000));
    assert_eq!(mel.features(&samples, 80_000), mel.features(&[], 0));
    assert_eq!(mel.features(&samples, usize::MAX), mel.features(&[0.0; 9], 0));
    assert!(mel.features(&[], 0).values.iter().all(|value| *value == -1.5));
}

#[test]
fn any_length_has_features() {
    let mel = Mel::new(80, 30).unwrap();
    for length in [0, 1, 2, 159, 160, 161, 200, 201, 320, 480] {
        let features = mel.whole(&vec![0.25; length]);
        assert_eq!(features.frames, length / 160);
        assert_eq!(features.values.len(), features.frames * 80);
        assert!(features.values.iter().all(|value| value.is_finite()));
    }
    assert!(mel.features(&[f32::NAN; 400], 0).values[0].is_nan());
    assert!(mel.features(&[f32::MAX; 4000], 0).values.iter().all(|value| value.is_finite()));
}

#[test]
fn sizes_out_of_range_are_rejected() {
    for (bands, seconds) in [(0, 30), (202, 30), (80, 0), (80, 301), (usize::MAX, usize::MAX)] {
        assert_eq!(Mel::new(bands, seconds).unwrap_err().kind(), ErrorKind::Argument);
    }
    for bands in [1, 20, 201] {
        assert_eq!(Mel::new(bands, 1).unwrap().features(&[1.0], 0).values.len(), 100 * bands);
    }
}

#[test]
fn resampled_sound_and_its_features_have_the_committed_bits() {
    let mut state = 1_u32;
    let noise = (0..40_000).map(|at| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let heard = if at % 9_000 < 6_000 { 1.0 } else { 0.0 };
        heard * ((state >> 8) as f32 / 16_777_216.0 - 0.5)
    });
    let noise: Vec<f32> = noise.collect();
    let hash = |values: &[f32]| {
        let bytes: Vec<_> = values.iter().flat_map(|value| value.to_bits().to_le_bytes()).collect();
        blake3::hash(&bytes).to_hex()[..16].to_owned()
    };
    let computed = [(8_000, 80), (37_123, 20), (44_100, 128)].map(|(rate, bands)| {
        let sound = resample(&noise, rate).unwrap();
        let features = Mel::new(bands, 5).unwrap().features(&sound, 0);
        [hash(&sound), hash(&features.values)]
    });
    let committed = [
        ["7ef3e7cead2a06e0", "175828ab4a6a4782"],
        ["e5ce400fe9a1a74c", "03044d9ed59de0bd"],
        ["f80a98a81ec41422", "bc68a80f872f8c71"],
    ];
    assert_eq!(computed, committed);
}
