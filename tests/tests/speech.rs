//! Speech with Whisper base, if downloaded by `cargo xtask model`: the same tokens as CTranslate2.

use siskin::audio::{AudioSamples, RATE};
use siskin::speech::{TranscribeOptions, Transcriber};
use siskin::{ErrorKind, Model, ModelOptions};
use siskin_convert::{OpenOptions, PackedCache, Recipe, open_any};
use siskin_tests::extent::cases;
use siskin_tests::{paths, texts};
use std::path::Path;
use std::sync::OnceLock;

fn model() -> Option<Model> {
    static MODEL: OnceLock<Model> = OnceLock::new();
    let path = paths::model("whisper")?;
    Some(MODEL.get_or_init(|| open(&path)).clone())
}

fn open(path: &Path) -> Model {
    let recipe: Recipe = "f32,tables=f32,always".parse().expect("the recipe is one");
    let options = OpenOptions { cache: PackedCache::Off, recipe: Some(recipe), ..OpenOptions::default() };
    let file = open_any(path, &options).expect("the model packs");
    Model::from_file(file, &ModelOptions::default()).expect("the model opens")
}

fn sound(name: &str) -> AudioSamples {
    let bytes = std::fs::read(paths::data("speech").join(format!("{name}.wav"))).expect("the sound is there");
    AudioSamples::from_wav(&bytes).expect("the sound is read")
}

#[test]
fn tokens_are_those_of_ctranslate2() {
    let Some(model) = model() else { return };
    let mut transcriber = Transcriber::new(&model, None).expect("the model listens");
    let bytes = std::fs::read(paths::data("speech/speech.json")).expect("the list is there");
    let all: serde_json::Value = serde_json::from_slice(&bytes).expect("the list is JSON");
    for (name, expected) in all.as_object().expect("the list is an object") {
        let sound = sound(name);
        let heard = transcriber.detect_language(&sound).expect("a language is heard");
        assert_eq!(heard[0].0, expected["language"], "{name}");
        let share = expected["share"].as_f64().expect("a number");
        assert!((f64::from(heard[0].1) - share).abs() < 1e-3, "{name}: {} is not {share}", heard[0].1);
        let ways =
            [("plain", false, 1), ("times", true, 1), ("plain_beams", false, 5), ("times_beams", true, 5)];
        // One with beams for one sound, and one without for the other.
        let chosen = if name == "english" { "times_beams" } else { "plain" };
        let ways = cases("ways to transcribe a sound", ways, |(key, ..)| *key == chosen);
        for (key, timestamps, beams) in ways {
            let options = TranscribeOptions { timestamps, beams, ..TranscribeOptions::default() };
            let found = transcriber.transcribe(&sound, &options).expect("the model runs");
            let ids: Vec<u32> = found.segments.iter().flat_map(|segment| segment.ids.clone()).collect();
            assert_eq!(serde_json::json!(ids), expected[key], "{name}, {key}: {}", found.text);
            assert_eq!(found.language.as_deref(), expected["language"].as_str());
            let silence = expected["silence"].as_f64().expect("a number");
            assert!(
                (f64::from(found.segments[0].no_speech_probability) - silence).abs() < 1e-3,
                "{name}: silence"
            );
        }
    }
}

#[test]
fn long_sounds_go_on_where_a_segment_ended_and_silence_says_nothing() {
    let Some(model) = model() else { return };
    let mut transcriber = Transcriber::new(&model, None).expect("the model listens");
    let once = sound("english");
    let silence = |seconds: u32| AudioSamples { rate: RATE, samples: vec![0.0; (seconds * RATE) as usize] };
    let options = TranscribeOptions::default();
    assert_eq!(transcriber.transcribe(&silence(9), &options).expect("silence is heard"), Default::default());
    // More than a window of 30 seconds.
    let mut long = silence(33);
    long.samples.extend_from_slice(&once.samples);
    let mut count = 0;
    let mut each = |_: &siskin::speech::Segment| {
        count += 1;
        Ok(())
    };
    let found = transcriber.transcribe_with(&long, &options, &mut each).expect("the model runs");
    let said = transcriber.transcribe(&once, &options).expect("the model runs").text;
    let words = |text: &str| text.chars().filter(|c| c.is_alphabetic()).collect::<String>().to_lowercase();
    assert!(words(&found.text).contains(&words(&said)), "{} has not {said}", found.text);
    assert_eq!(count, found.segments.len());
    assert!(found.segments.iter().all(|segment| segment.start < segment.end));
    assert!(found.segments.last().is_some_and(|segment| segment.end > 33.0));
}

#[test]
fn models_that_do_not_listen_are_rejected() {
    let file = texts::load("bart", None).file;
    let model = Model::from_file(file, &ModelOptions::default()).expect("the model opens");
    assert_eq!(Transcriber::new(&model, None).err().map(|error| error.kind()), Some(ErrorKind::Unsupported));
    // A window of 0.6 seconds.
    let file = texts::load("whisper", None).file;
    let model = Model::from_file(file, &ModelOptions::default()).expect("the model opens");
    assert_eq!(Transcriber::new(&model, None).err().map(|error| error.kind()), Some(ErrorKind::Unsupported));
}
