//! Self-tests with the goldens that a file records.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::io::Cursor;

use siskin::file::File;
use siskin::self_test::{Goldens, SelfTest};
use siskin::{Cpu, CpuFeatures, DeviceKind, ErrorKind};
use siskin_convert::{OpenOptions, PackedCache, open_any};
use siskin_format::file::SectionKind;
use siskin_tests::golden::{load, model};
use siskin_tests::paths;

/// Returns a file with its goldens.
fn with_goldens(file: &File) -> File {
    let goldens = Goldens::compute(&model(file, DeviceKind::Cpu, 1, CpuFeatures::NONE)).unwrap();
    let copy = Cursor::new(file.bytes().to_vec());
    let bytes = file.append_section(copy, SectionKind::Goldens, &goldens.to_section()).unwrap();
    File::from_bytes(bytes.into_inner()).unwrap()
}

fn text_model(name: &str) -> File {
    let folder = paths::data("golden-texts").join(name);
    open_any(&folder, &OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() }).unwrap()
}

#[test]
fn goldens_are_the_same_on_every_device_and_kernel() {
    let decoders = ["llama", "gpt2", "qwen3", "lfm2", "olmoe"].map(|name| (name, load(name).file));
    let others = ["bert", "t5", "whisper", "switch"].map(|name| (name, text_model(name)));
    for (name, plain) in decoders.into_iter().chain(others) {
        let file = with_goldens(&plain);
        file.verify(&mut |_, _| true).unwrap();
        assert_eq!(file.digest(), plain.digest(), "{name}: the model is the same");
        for (device, threads, disabled) in [
            (DeviceKind::Cpu, 3, CpuFeatures::NONE),
            (DeviceKind::Cpu, 1, Cpu::detect().features()),
            (DeviceKind::Reference, 1, CpuFeatures::NONE),
        ] {
            let model = model(&file, device, threads, disabled);
            let goldens = Goldens::of(&model).unwrap().unwrap();
            assert_eq!(goldens.check(&model).unwrap(), SelfTest::Passed, "{name} {device:?}");
        }
        assert!(Goldens::of(&model(&plain, DeviceKind::Cpu, 1, CpuFeatures::NONE)).unwrap().is_none());
        let again = file.append_section(Cursor::new(file.bytes().to_vec()), SectionKind::Goldens, b"{}");
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Argument);
    }
}

#[test]
fn a_flipped_bit_fails_the_test() {
    let file = with_goldens(&load("llama").file);
    for name in ["blk.0.attn_q.weight", "blk.1.ffn_down.weight", "output_norm.weight"] {
        let tensor = file.tensor(name).unwrap();
        let mut bytes = file.bytes().to_vec();
        // A weight of every input: the upper bits of a value, in the first line of the first panel.
        bytes[tensor.offset() + 3] ^= 0x40;
        let damaged = model(&File::from_bytes(bytes).unwrap(), DeviceKind::Cpu, 1, CpuFeatures::NONE);
        let goldens = Goldens::of(&damaged).unwrap().unwrap();
        // Outputs that are not finite are an error of their own.
        assert_ne!(goldens.check(&damaged).ok(), Some(SelfTest::Passed), "{name}");
    }
    let mut bytes = file.bytes().to_vec();
    let at = bytes.windows(7).rposition(|window| window == b"outputs").unwrap();
    bytes[at] ^= 1;
    let damaged = model(&File::from_bytes(bytes).unwrap(), DeviceKind::Cpu, 1, CpuFeatures::NONE);
    assert_eq!(Goldens::of(&damaged).unwrap_err().kind(), ErrorKind::Integrity);
}
