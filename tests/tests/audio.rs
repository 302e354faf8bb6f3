//! Log-mel features compared to Transformers, and WAV files compared to libsndfile: `tests/data/audio/README.md`.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use siskin::audio::{AudioSamples, Mel, WindowFeatures};
use siskin::file::Bytes;
use siskin_convert::import::safetensors::{self, SafetensorsTensor};
use siskin_tests::paths;
use std::collections::HashMap;
use std::f64::consts::TAU;

fn tensors(name: &str) -> HashMap<String, SafetensorsTensor> {
    let bytes = std::fs::read(paths::data("audio").join(name)).unwrap();
    safetensors::parse(Bytes::new(bytes)).unwrap()
}

fn integers(tensor: &SafetensorsTensor) -> Vec<usize> {
    tensor.data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as usize).collect()
}

fn noise(length: usize, seed: u32) -> impl Iterator<Item = f64> {
    let mut state = seed;
    (0..length).map(move |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 23) - 1.0
    })
}

/// A chirp from 100 Hz, rising by 260 Hz per second, over noise.
fn chirp(length: usize, seed: u32) -> Vec<f32> {
    let sweep = |time: f64| 0.5 * (TAU * (100.0 * time + 130.0 * time * time)).sin();
    let sound = noise(length, seed).enumerate().map(|(at, noise)| sweep(at as f64 / 16_000.0) + 0.1 * noise);
    sound.map(|sample| sample as f32).collect()
}

/// Noise that is switched on and off every quarter of a second.
fn bursts(length: usize, seed: u32) -> Vec<f32> {
    let heard = |at: usize| if (at / 4000).is_multiple_of(2) { 0.3 } else { 0.0 };
    noise(length, seed).enumerate().map(|(at, noise)| (heard(at) * noise) as f32).collect()
}

fn silence(length: usize, _seed: u32) -> Vec<f32> {
    vec![0.0; length]
}

struct Case {
    name: &'static str,
    sound: fn(usize, u32) -> Vec<f32>,
    samples: usize,
    seed: u32,
    from: usize,
    bands: usize,
    /// 0: as long as the sound.
    seconds: usize,
}

const fn case(
    name: &'static str,
    sound: fn(usize, u32) -> Vec<f32>,
    [samples, seed, from]: [usize; 3],
    [bands, seconds]: [usize; 2],
) -> Case {
    Case { name, sound, samples, seed: seed as u32, from, bands, seconds }
}

/// The same list as in the script.
const CASES: [Case; 11] = [
    case("chirp-80", chirp, [480_000, 1, 0], [80, 30]),
    case("chirp-128", chirp, [480_000, 2, 0], [128, 30]),
    case("chirp-20", chirp, [470_001, 3, 0], [20, 30]),
    case("silence", silence, [16_000, 0, 0], [80, 30]),
    case("short", chirp, [1_600, 4, 0], [80, 30]),
    case("one-sample", chirp, [1, 5, 0], [80, 30]),
    case("long", chirp, [640_000, 6, 0], [80, 30]),
    case("long-later", chirp, [640_000, 6, 200_001], [128, 30]),
    case("bursts", bursts, [400_000, 7, 777], [80, 30]),
    case("five-seconds", bursts, [90_000, 8, 0], [20, 5]),
    case("whole", chirp, [560_077, 9, 0], [128, 0]),
];

fn compute(case: &Case) -> WindowFeatures {
    let samples = (case.sound)(case.samples, case.seed);
    match case.seconds {
        0 => Mel::new(case.bands, 30).unwrap().whole(&samples),
        seconds => Mel::new(case.bands, seconds).unwrap().features(&samples, case.from),
    }
}

#[test]
fn features_are_those_of_transformers() {
    let golden = tensors("mel.safetensors");
    for case in &CASES {
        let features = compute(case);
        let part = |part: &str| &golden[&format!("{}.{part}", case.name)];
        assert_eq!(vec![features.frames], integers(part("count")), "{}: frames", case.name);
        assert_eq!(features.bands, case.bands);
        assert_eq!(features.values.len(), features.frames * features.bands);
        let frames = integers(part("frames"));
        let values = part("values");
        assert_eq!(values.shape, [frames.len() as u64, case.bands as u64]);
        let mut max_error = 0.0_f32;
        for (frame, expected) in frames.into_iter().zip(values.data.chunks_exact(4 * case.bands)) {
            let row = &features.values[frame * case.bands..][..case.bands];
            for (band, (value, expected)) in row.iter().zip(expected.as_chunks::<4>().0).enumerate() {
                let difference = (value - f32::from_le_bytes(*expected)).abs();
                assert!(difference <= 1e-4, "{}: frame {frame}, band {band}: {difference:e}", case.name);
                max_error = max_error.max(difference);
            }
        }
        println!(
            "{}: {} frames of {}, largest difference {max_error:.2e}",
            case.name, features.frames, case.bands
        );
    }
}

#[test]
fn wave_files_hold_what_libsndfile_reads() {
    let golden = tensors("wav.safetensors");
    assert_eq!(golden.len(), 9);
    for (name, expected) in golden {
        let rate = match name.as_str() {
            "pcm8-mono" => 8_000,
            "pcm16-stereo" => 44_100,
            "pcm24-mono" | "extensible-pcm16-six" => 48_000,
            "pcm32-stereo" => 16_000,
            "float32-mono" => 22_050,
            "float64-stereo" => 96_000,
            "extensible-pcm24-three" => 11_025,
            "extensible-float32-mono" => 192_000,
            other => panic!("{other} is new"),
        };
        let bytes = std::fs::read(paths::data("audio").join(format!("{name}.wav"))).unwrap();
        let sound = AudioSamples::from_wav(&bytes).unwrap();
        assert_eq!(sound.rate, rate, "{name}");
        let expected: Vec<_> =
            expected.data.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        assert_eq!(sound.samples.len(), expected.len(), "{name}");
        let difference = |(sample, expected): (&f32, &f64)| (f64::from(*sample) - expected).abs();
        let max_error = sound.samples.iter().zip(&expected).map(difference).fold(0.0, f64::max);
        assert!(max_error < 1e-7, "{name}: {max_error:e}");
        assert!(expected.iter().any(|sample| sample.abs() > 0.3), "{name} is too quiet to tell");
    }
}
