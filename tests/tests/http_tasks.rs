//! The HTTP server with models that are not decoders: the results of the library, and errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use crate::http::{Running, request};
use serde_json::{Value, json};
use siskin::encoder::OverflowMode;
use siskin::speech::{TranscribeOptions, Transcriber};
use siskin::{EncoderOptions, Model, ModelOptions, Seq2SeqOptions};
use siskin_convert::{OpenOptions, open_any};
use siskin_serve::{ServedModel, ServerOptions};
use siskin_tests::temp_folder::TempFolder;
use siskin_tests::{paths, search, texts};

pub(super) const TEXTS: [&str; 3] = ["w5 w6 w7", "w30 w12 w9 w44", "w8"];

pub(super) fn open(folder: &str) -> Model {
    let options = ModelOptions { threads: 1, ..ModelOptions::default() };
    Model::from_file(texts::with_words(folder), &options).unwrap()
}

pub(super) fn translator() -> Model {
    let folder = TempFolder::new("http-translator");
    let words = &[(3, "__de__"), (4, "__en__"), (2, "</s>")];
    let file = search::with_tokenizer(folder.path(), "m2m", "golden-texts/m2m", words, &json!({}));
    Model::from_file(file, &ModelOptions { threads: 1, ..ModelOptions::default() }).unwrap()
}

pub(super) fn server(models: Vec<(&str, Model)>) -> Running {
    let served = models.into_iter().map(|(name, model)| ServedModel::new(name, model)).collect();
    Running::serve_all(ServerOptions::default(), served)
}

pub(super) fn ok(server: &Running, path: &str, body: &Value) -> Value {
    let (status, response) = server.post(path, body);
    assert_eq!(status, 200, "{path}: {response}");
    response
}

#[test]
fn heads_of_encoders_have_the_results_of_the_library() {
    let (classes, labels) = (open("golden-texts/bert-classes"), open("golden-texts/bert-labels"));
    let server = server(vec![("classes", classes.clone()), ("labels", labels.clone())]);
    let mut encoder = classes.encoder(EncoderOptions::default()).unwrap();
    let expected = encoder.classify(&TEXTS, OverflowMode::Error).unwrap();
    let response = ok(&server, "/v1/classify", &json!({"model": "classes", "input": TEXTS}));
    for (data, expected) in response["data"].as_array().unwrap().iter().zip(&expected) {
        assert_eq!(data["label"], expected[0].label);
        let scores: Vec<f32> = data["classes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|class| class["score"].as_f64().unwrap() as f32)
            .collect();
        let probabilities: Vec<f32> = expected.iter().map(|class| class.probability).collect();
        assert_eq!(scores, probabilities);
    }
    assert_eq!(response["usage"]["prompt_tokens"], 3 + 4 + 1 + 3 * 2);

    let scores = encoder.rerank("w5", &TEXTS, OverflowMode::Error).unwrap();
    let body =
        json!({"model": "classes", "query": "w5", "documents": TEXTS, "top_n": 2, "return_documents": true});
    let results = ok(&server, "/v1/rerank", &body)["results"].clone();
    let mut order: Vec<usize> = (0..3).collect();
    order.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]));
    for (result, index) in results.as_array().unwrap().iter().zip(&order) {
        assert_eq!(result["index"], *index);
        assert_eq!(result["document"]["text"], TEXTS[*index]);
        let logistic = 1.0 / (1.0 + (-f64::from(scores[*index])).exp());
        assert!((result["relevance_score"].as_f64().unwrap() - logistic).abs() < 1e-9);
    }
    assert_eq!(results.as_array().unwrap().len(), 2);

    let text = "w5 w6 w30 w12 w70 w8";
    let entities =
        labels.encoder(EncoderOptions::default()).unwrap().tag(&[text], OverflowMode::Error).unwrap();
    let response = ok(&server, "/v1/tag", &json!({"model": "labels", "input": text}));
    let found = response["data"][0]["entities"].as_array().unwrap().clone();
    assert_eq!(found.len(), entities[0].len());
    for (found, entity) in found.iter().zip(&entities[0]) {
        assert_eq!((&found["label"], &found["start"]), (&json!(entity.label), &json!(entity.start)));
        assert_eq!(found["text"], text[entity.start..entity.end]);
    }
    let long = vec!["w5"; 200].join(" ");
    let (status, error) = server.post("/v1/classify", &json!({"model": "classes", "input": ["w5", long]}));
    assert_eq!((status, &error["error"]["param"]), (400, &json!("input[1]")), "{error}");
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    let truncated = json!({"model": "classes", "input": long, "truncate": true});
    ok(&server, "/v1/classify", &truncated);
}

#[test]
fn tasks_need_models_that_can_do_them() {
    let server = server(vec![("labels", open("golden-texts/bert-labels")), ("translator", translator())]);
    for (path, body, message) in [
        ("/v1/classify", json!({"model": "labels", "input": "w5"}), "no head for classes"),
        ("/v1/classify", json!({"model": "translator", "input": "w5"}), "translates and summarizes"),
        ("/v1/translate", json!({"model": "labels", "input": "w5"}), "is an encoder"),
        ("/v1/completions", json!({"model": "translator", "prompt": "w5"}), "/v1/translate"),
        ("/v1/classify", json!({"model": "labels", "input": []}), "expected 1 to 1024 texts"),
        ("/v1/classify", json!({"model": "labels", "input": "w5", "bogus": 1}), "unknown field `bogus`"),
        ("/v1/classify", json!({"input": "w5"}), "model: missing"),
        ("/v1/rerank", json!({"model": "labels", "query": "w5"}), "documents: missing"),
        ("/v1/rerank", json!({"model": "labels", "query": "w5", "documents": [5]}), "expected a text"),
        ("/v1/translate", json!({"model": "translator", "input": "t5", "target_language": "xx"}), "language"),
        ("/v1/translate", json!({"model": "translator", "input": "t5", "num_beams": 99}), "expected 1 to 16"),
        ("/tokenize", json!({"model": "labels"}), "expected either a text or messages"),
        ("/detokenize", json!({"model": "labels", "tokens": [99999]}), "tokens"),
    ] {
        let (status, response) = server.post(path, &body);
        assert_eq!(status, 400, "{path} {body}: {response}");
        let text = response["error"]["message"].as_str().unwrap();
        assert!(text.contains(message), "{path} {body}: {text}");
    }
    let form = request("POST", "/v1/audio/transcriptions", b"{}");
    assert!(server.exchange(&form).starts_with("HTTP/1.1 415 "));
}

#[test]
fn texts_are_translated_beside_others() {
    let model = translator();
    let server = server(vec![("translator", model.clone())]);
    let mut seq2seq = model.seq2seq(Seq2SeqOptions::default()).unwrap();
    let inputs = ["t9 t10", "t11", "t12 t13 t14"];
    let expected: Vec<String> = seq2seq
        .translate(&inputs, "de", "en")
        .unwrap()
        .into_iter()
        .map(|mut candidates| candidates.remove(0).text)
        .collect();
    let translate = || {
        let body = json!({"input": inputs, "source_language": "de", "target_language": "en"});
        let response = ok(&server, "/v1/translate", &body);
        let data = response["data"].as_array().unwrap();
        data.iter().map(|text| text["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(translate)).collect();
        all.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), expected));
    });
}

#[test]
fn texts_are_tokenized() {
    let model = open("golden-texts/bert-classes");
    let server = server(vec![("classes", model.clone())]);
    let ids = model.tokenizer().unwrap().encode("w5 w6", Default::default()).unwrap();
    let response = ok(&server, "/tokenize", &json!({"prompt": "w5 w6", "add_special_tokens": false}));
    let plain = response["tokens"].as_array().unwrap().clone();
    assert_eq!(response["count"], plain.len());
    let body = json!({"content": "w5 w6", "return_token_strs": true});
    let special = ok(&server, "/tokenize", &body);
    assert!(special["tokens"].as_array().unwrap().len() >= plain.len());
    assert_eq!(special["token_strs"].as_array().unwrap().len(), special["tokens"].as_array().unwrap().len());
    assert!(ids.iter().all(|id| special["tokens"].as_array().unwrap().contains(&json!(id))));
    assert_eq!(ok(&server, "/detokenize", &json!({"tokens": plain}))["prompt"], "w5 w6");
}

#[test]
fn speech_is_transcribed() {
    let Some(path) = paths::model("whisper") else { return };
    let file = open_any(&path, &OpenOptions::default()).unwrap();
    let model = Model::from_file(file, &ModelOptions::default()).unwrap();
    let wav = std::fs::read(paths::data("speech").join("english.wav")).unwrap();
    let sound = siskin::audio::AudioSamples::from_wav(&wav).unwrap();
    let options = TranscribeOptions { timestamps: true, ..TranscribeOptions::default() };
    let expected = Transcriber::new(&model, None).unwrap().transcribe(&sound, &options).unwrap();
    let server = server(vec![("whisper", model)]);
    let send = |fields: &[(&str, &str)], file: &[u8]| {
        let mut body = Vec::new();
        for (name, value) in fields {
            body.extend(
                format!("--XX\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes(),
            );
        }
        body.extend(b"--XX\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n");
        body.extend(file);
        body.extend(b"\r\n--XX--\r\n");
        let head = format!(
            "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: multipart/form-data; boundary=XX\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let response = server.exchange(&[head.into_bytes(), body].concat());
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse::<u16>().unwrap(), body.to_owned())
    };
    let (status, body) = send(&[("model", "whisper"), ("response_format", "verbose_json")], &wav);
    assert_eq!(status, 200, "{body}");
    let object: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&object["text"], &object["language"]), (&json!(expected.text), &json!(expected.language)));
    assert_eq!(object["segments"][0]["tokens"], json!(expected.segments[0].ids));
    let (_, subtitles) = send(&[("response_format", "srt")], &wav);
    assert!(
        subtitles.starts_with("1\n00:00:0") && subtitles.contains(expected.segments[0].text.trim()),
        "{subtitles}"
    );
    let media = |name: &str| std::fs::read(siskin_tests::paths::data("media").join(name)).unwrap();
    // The same samples.
    let [flac, wav_of_flac] = ["flac.ogg", "flac.ogg.wav"].map(|name| send(&[], &media(name)));
    assert_eq!((flac.0, flac), (200, wav_of_flac));
    for (fields, file, param) in [
        (&[("model", "whisper")][..], &b"not a wave file"[..], "file"),
        (&[], &media("opus.webm"), "file"),
        (&[("language", "xx")], &wav, "language"),
        (&[("temperature", "1")], &wav, "temperature"),
        (&[("bogus", "1")], &wav, "bogus"),
        (&[("response_format", "pdf")], &wav, "response_format"),
    ] {
        let (status, body) = send(fields, file);
        let error: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &error["error"]["param"]), (400, &json!(param)), "{body}");
    }
}
