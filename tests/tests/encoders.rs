//! Encoder results with a small tokenizer: question answering in windows, cached embeddings.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use siskin::encoder::{EmbedOptions, EncoderInput, OverflowMode, Pooling, TextOutputs};
use siskin::result_cache::{CacheQuery, CachedAnswer, ResultCache, ResultCacheOptions};
use siskin::sample::SamplerOptions;
use siskin::{
    CacheType, DeviceKind, Encoder, EncoderOptions, ErrorKind, FinishReason, GenerateOptions, LayerSet,
    Model, ModelOptions, OutputRows, SequenceInput, SessionOptions,
};
use siskin_tests::{golden, paths, texts};
use siskin_tokenizer::to_byte_level;

fn open(folder: &str) -> Model {
    Model::from_file(texts::with_words(folder), &ModelOptions { threads: 2, ..ModelOptions::default() })
        .unwrap()
}

fn words(count: usize, seed: usize) -> String {
    let word = |i: usize| format!("w{}", 5 + (i * i * 7 + i * (3 + seed) + seed) % 75);
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn answers_in_long_texts_are_those_of_transformers() {
    let model = open("golden-texts/bert-answer");
    let mut encoder = model.encoder(EncoderOptions::default()).unwrap();
    let expected = std::fs::read(paths::data("golden-exits").join("answers.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let question = expected["question"].as_str().unwrap();
    for case in expected["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let answer = encoder.answer(question, text, OverflowMode::Window { overlap: 32 }).unwrap();
        let place = (answer.start as u64, answer.end as u64);
        assert_eq!(place, (case["start"].as_u64().unwrap(), case["end"].as_u64().unwrap()));
        assert!((f64::from(answer.probability) / case["probability"].as_f64().unwrap() - 1.0).abs() < 1e-3);
        assert_eq!(
            encoder.answer(question, text, OverflowMode::Error).unwrap_err().kind(),
            ErrorKind::TooLong
        );
        // Truncation keeps the beginning: 64 tokens less the question and three special ones.
        let cut: Vec<&str> = text.split(' ').take(57).collect();
        let beginning = encoder.answer(question, &cut.join(" "), OverflowMode::Error).unwrap();
        assert_eq!(encoder.answer(question, text, OverflowMode::Truncate).unwrap(), beginning);
        assert_eq!(
            encoder.answer(question, &cut.join(" "), OverflowMode::Window { overlap: 5 }).unwrap(),
            beginning
        );
        let wide = encoder.answer(question, text, OverflowMode::Window { overlap: 57 }).unwrap_err();
        assert_eq!(wide.kind(), ErrorKind::Argument);
    }
    assert_eq!(encoder.answer(question, "", OverflowMode::Error).unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn labels_do_not_depend_on_the_other_texts() {
    let model = open("golden-texts/bert-labels");
    let mut encoder = model.encoder(EncoderOptions::default()).unwrap();
    let texts: Vec<String> = [150, 3, 61, 62, 200].iter().map(|&count| words(count, count)).collect();
    let long = OverflowMode::Window { overlap: 10 };
    let together = encoder.tag(&texts, long).unwrap();
    for (text, together) in texts.iter().zip(&together) {
        assert_eq!(&encoder.tag(&[text], long).unwrap()[0], together);
    }
    assert!(together[0].windows(2).all(|pair| pair[0].end <= pair[1].start));
    assert!(together[0].last().is_some_and(|entity| entity.end > texts[0].len() / 2), "later parts count");
    assert!(encoder.tag(&texts, OverflowMode::Error).unwrap_err().location().starts_with("text 0"));
}

/// Returns a model whose labels depend on each token alone, regardless of the other tokens.
fn labels_of_tokens(labels: [&str; 5], change: impl FnOnce(&Path)) -> Encoder {
    let file = texts::changed("golden-texts/bert-labels", |folder| {
        texts::zero(folder, &["position_embeddings.weight", "output.dense.weight", "output.dense.bias"]);
        texts::change_json(&folder.join("config.json"), |config| {
            let names = (0..5).map(|index| (index.to_string(), labels[index].into()));
            config["id2label"] = Value::Object(names.collect());
        });
        change(folder);
    });
    let model = Model::from_file(file, &ModelOptions { threads: 2, ..ModelOptions::default() }).unwrap();
    model.encoder(EncoderOptions::default()).unwrap()
}

#[test]
fn runs_that_parts_cut_are_found_whole() {
    let mut encoder = labels_of_tokens(["O", "I-A", "I-A", "O", "O"], |_| {});
    let vocabulary: Vec<String> = (5..80).map(|number| format!("w{number}")).collect();
    let alone = encoder.tag(&vocabulary, OverflowMode::Error).unwrap();
    let word = |named: bool| {
        let all = vocabulary.iter().zip(&alone).filter(|(word, _)| word.len() == 3);
        all.clone().find(|(_, found)| found.is_empty() != named).unwrap().0.as_str()
    };
    let (named, other) = (word(true), word(false));
    for (length, overlap) in [(1, 0), (2, 0), (6, 8), (12, 8), (12, 61), (100, 8)] {
        for before in (0..70).chain(110..130) {
            let words = [vec![other; before], vec![named; length], vec![other; 40]].concat();
            let found = encoder.tag(&[words.join(" ")], OverflowMode::Window { overlap }).unwrap().remove(0);
            let spans: Vec<(usize, usize)> = found.iter().map(|entity| (entity.start, entity.end)).collect();
            let want = (before * 4, (before + length) * 4 - 1);
            assert_eq!(spans, [want], "{length} words behind {before}, {overlap} shared");
        }
    }
}

/// Returns a byte-level tokenizer with a token for each byte of these texts, and some tokens of several bytes.
fn byte_level(post_processor: &Value) -> Value {
    let mut spelled: Vec<String> = ["<s>", "</s>"].map(str::to_owned).to_vec();
    spelled.extend(to_byte_level("inewYork 東京\n".as_bytes()).chars().map(String::from));
    spelled.extend(["in", "ĠN", "N", "Ġin"].map(str::to_owned));
    let mut ids = serde_json::Map::new();
    for text in spelled {
        let id = ids.len();
        ids.entry(text).or_insert(id.into());
    }
    json!({"version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": post_processor,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": ids, "merges": ["i n", "Ġ N", "Ġ in"]}})
}

#[test]
fn spans_of_bytes_are_those_of_transformers() {
    let roberta = |trim: bool| {
        json!({"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0], "trim_offsets": trim,
            "add_prefix_space": false})
    };
    let text = "in New  in 東\n";
    // As the pipeline for `token-classification` gives them, except for empty ones, where every token begins a run.
    let trimmed = [(0, 2), (3, 4), (4, 5), (5, 6), (8, 10), (11, 14), (11, 14), (11, 14), (14, 15)];
    let whole =
        [(0, 2), (2, 4), (4, 5), (5, 6), (6, 7), (7, 10), (10, 11), (11, 14), (11, 14), (11, 14), (14, 15)];
    let sequence = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let plain = json!({"type": "TemplateProcessing", "single": [sequence("A")],
        "pair": [sequence("A"), sequence("B")], "special_tokens": {}});
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    for (processor, want) in [
        (roberta(true), &trimmed[..]),
        (roberta(false), &whole),
        (json!({"type": "Sequence", "processors": [bytes, plain]}), &trimmed),
        (plain, &whole),
    ] {
        let tokenizer = byte_level(&processor);
        let with = |folder: &Path| {
            std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        };
        let spans = |label: &str| -> Vec<(usize, usize)> {
            let found =
                labels_of_tokens([label; 5], with).tag(&[text], OverflowMode::Error).unwrap().remove(0);
            found.iter().map(|entity| (entity.start, entity.end)).collect()
        };
        assert_eq!(spans("B-A"), want, "{processor}");
        assert_eq!(spans("I-A"), [(0, 15)], "{processor}");
        let file = texts::changed("golden-texts/bert-answer", with);
        let model = Model::from_file(file, &ModelOptions { threads: 2, ..ModelOptions::default() }).unwrap();
        let mut encoder = model.encoder(EncoderOptions::default()).unwrap();
        for text in ["東京", "in 京\n", " 東 京"] {
            let answer = encoder.answer("in", text, OverflowMode::Error).unwrap();
            assert!(text.get(answer.start..answer.end).is_some_and(|found| !found.is_empty()), "{answer:?}");
        }
    }
}

#[test]
fn classes_are_told_as_transformers_tells_them() {
    let scores = |problem: Option<&str>| {
        let file = texts::changed("golden-texts/bert-classes", |folder| {
            texts::change_json(&folder.join("config.json"), |config| {
                config["problem_type"] = problem.into();
            });
        });
        let model = Model::from_file(file, &ModelOptions { threads: 2, ..ModelOptions::default() }).unwrap();
        let mut encoder = model.encoder(EncoderOptions::default()).unwrap();
        let text = words(20, 3);
        let ids = encoder.parts(&text, OverflowMode::Error).unwrap().remove(0).tokens;
        let mut raw = Vec::new();
        let keep = &mut |_: usize, outputs: TextOutputs<'_>| {
            raw = outputs.row(0).to_vec();
            Ok(())
        };
        encoder.encode(&[ids], OutputRows::First, keep).unwrap();
        let found = encoder.classify(&[text], OverflowMode::Error).unwrap().remove(0);
        (raw, found.into_iter().map(|class| class.probability).collect::<Vec<f32>>())
    };
    let descending = |mut all: Vec<f32>| {
        all.sort_by(|a, b| b.total_cmp(a));
        all
    };
    let (raw, numbers) = scores(Some("regression"));
    assert_eq!(numbers, descending(raw.clone()));
    let logistic = |x: &f32| 1.0 / (1.0 + (-x).exp());
    let (_, apart) = scores(Some("multi_label_classification"));
    let want = descending(raw.iter().map(logistic).collect());
    assert!(apart.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6), "{apart:?}, {want:?}");
    for exclusive in [None, Some("single_label_classification")] {
        let (_, exclusive) = scores(exclusive);
        assert!((exclusive.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{exclusive:?}");
    }
}

fn embedder(model: &Model) -> Encoder {
    model.encoder(EncoderOptions { head: false, ..EncoderOptions::default() }).unwrap()
}

#[test]
fn remembered_vectors_have_the_same_bits() {
    let model = open("golden-texts/bert");
    let (mut plain, mut remembering) = (embedder(&model), embedder(&model));
    let result_cache = Arc::new(ResultCache::new(ResultCacheOptions::default()));
    remembering.set_cache(Arc::clone(&result_cache));
    let usual =
        EmbedOptions { overflow: OverflowMode::Window { overlap: 4 }, ..EmbedOptions::of(&model).unwrap() };
    let texts: Vec<String> = [5, 130, 1, 40, 62].iter().map(|&count| words(count, count)).collect();
    let all = plain.embed(&texts, &usual).unwrap();
    for (text, vector) in texts.iter().zip(&all) {
        assert_eq!(&plain.embed(&[text], &usual).unwrap()[0], vector, "long neighbors change nothing");
    }
    let few = [&texts[3], &texts[1]];
    assert_eq!(remembering.embed(&few, &usual).unwrap(), [all[3].clone(), all[1].clone()]);
    assert_eq!(remembering.embed(&texts, &usual).unwrap(), all);
    let statistics = result_cache.statistics();
    assert_eq!((statistics.hits, statistics.misses), (2, 5));
    let work = remembering.work();
    assert_eq!(remembering.embed(&texts, &usual).unwrap(), all);
    assert_eq!(remembering.work(), work, "nothing was computed");
    // Saved and loaded.
    let again = Arc::new(ResultCache::new(ResultCacheOptions::default()));
    again.load(&result_cache.to_bytes()).unwrap();
    let mut other = embedder(&model);
    other.set_cache(again);
    assert_eq!(other.embed(&texts, &usual).unwrap(), all);
    assert_eq!(other.work().rows, 0);
    // Errors refer to texts by the caller's indices.
    let rejected = EmbedOptions { overflow: OverflowMode::Error, ..usual };
    assert_eq!(remembering.embed(&texts, &rejected).unwrap_err().location(), "text 1: text");
}

#[test]
fn other_models_and_options_get_vectors_of_their_own() {
    let file = texts::with_words("golden-texts/bert");
    let open_as = |options| Model::from_file(file.clone(), &options).unwrap();
    let model = open_as(ModelOptions { threads: 2, ..ModelOptions::default() });
    let result_cache = Arc::new(ResultCache::new(ResultCacheOptions::default()));
    let usual = EmbedOptions::of(&model).unwrap();
    let skip = LayerSet::of(&[1]).unwrap();
    let shorter = open_as(ModelOptions { skip, ..ModelOptions::default() });
    let same = open_as(ModelOptions { threads: 1, device: DeviceKind::Reference, ..ModelOptions::default() });
    let exact = EncoderOptions { head: false, cache: Some(CacheType::F32), ..EncoderOptions::default() };
    let coarse = EncoderOptions { cache: Some(CacheType::Int8), ..exact };
    let encoders = [
        (model.encoder(exact).unwrap(), true),
        (model.encoder(coarse).unwrap(), true),
        (embedder(&open("golden-texts/bert-classes")), true),
        (embedder(&shorter), true),
        // The default cache type is part of the key, the device and threads are not.
        (embedder(&same), false),
    ];
    for (mut encoder, differs) in encoders {
        encoder.set_cache(Arc::clone(&result_cache));
        let before = result_cache.len();
        let options = [
            usual,
            EmbedOptions { pooling: Pooling::Max, ..usual },
            EmbedOptions { normalize: false, ..usual },
            EmbedOptions { dimensions: 8, ..usual },
        ];
        for options in options {
            encoder.embed(&["w5 w6", "w6 w5"], &options).unwrap();
        }
        assert_eq!(result_cache.len() - before, if differs { 8 } else { 0 });
    }
}

#[test]
fn answers_are_found_by_everything_they_depend_on() {
    let model = open("golden/llama");
    let result_cache = ResultCache::new(ResultCacheOptions {
        time_to_live: Some(Duration::from_secs(3600)),
        ..ResultCacheOptions::default()
    });
    let session = SessionOptions { context: 64, ..SessionOptions::default() };
    let generate = GenerateOptions { max_tokens: 8, raw: true, parse_special: false };
    let ask = |prompt: &str, session: &SessionOptions, generate| {
        CacheQuery::new(&model, &[], prompt, session, generate).unwrap()
    };
    let compute = |prompt: &str, session: &SessionOptions| {
        let mut session = model.session(session.clone()).unwrap();
        let mut pieces = session.generate(prompt, generate).unwrap();
        let text: String = pieces.by_ref().map(Result::unwrap).collect();
        CachedAnswer { text, tokens: pieces.tokens(), finish_reason: pieces.finish_reason().unwrap() }
    };
    let answer = compute("w5 w6 w7", &session);
    assert_eq!((answer.tokens, answer.finish_reason), (8, FinishReason::Length));
    result_cache.insert_answer(&ask("w5 w6 w7", &session, generate), &answer).unwrap();
    let found = result_cache.answer(&ask("w5 w6 w7", &session, generate)).unwrap();
    assert_eq!(found, compute("w5 w6 w7", &session));
    // The batch size is not part of the key; everything else is.
    let cut = SessionOptions { batch: 2, ..session.clone() };
    assert!(result_cache.answer(&ask("w5 w6 w7", &cut, generate)).is_some());
    let sampled = |change: fn(&mut SamplerOptions)| {
        let mut session = session.clone();
        change(&mut session.sampler);
        session
    };
    let others = [
        sampled(|sampler| sampler.seed = 9),
        sampled(|sampler| sampler.temperature = 0.7),
        sampled(|sampler| sampler.logit_bias = vec![(5, 0.5)]),
        SessionOptions { stop: vec!["w9".to_owned()], ..session.clone() },
        SessionOptions { cache: Some(CacheType::Int8), ..session.clone() },
    ];
    assert!(others.iter().all(|other| result_cache.answer(&ask("w5 w6 w7", other, generate)).is_none()));
    assert!(result_cache.answer(&ask("w5 w6", &session, generate)).is_none());
    assert!(
        result_cache
            .answer(&ask("w5 w6 w7", &session, GenerateOptions { max_tokens: 9, ..generate }))
            .is_none()
    );
    // Greedy decoding does not use the seed.
    let greedy = |seed| SessionOptions {
        sampler: SamplerOptions { seed, ..SamplerOptions::greedy() },
        ..session.clone()
    };
    result_cache.insert_answer(&ask("w8", &greedy(1), generate), &answer).unwrap();
    assert!(result_cache.answer(&ask("w8", &greedy(2), generate)).is_some());
}

#[test]
fn answers_are_found_by_what_the_prompt_means() {
    let model = open("golden/llama");
    let mut encoder = embedder(&open("golden-texts/bert"));
    let options = EmbedOptions::of(encoder.model()).unwrap();
    let result_cache = ResultCache::new(ResultCacheOptions::default());
    let generate = GenerateOptions { max_tokens: 8, raw: true, parse_special: false };
    let mut ask = |prompt: &str, max_tokens: usize| {
        let generate = GenerateOptions { max_tokens, ..generate };
        let mut question =
            CacheQuery::new(&model, &[], prompt, &SessionOptions::default(), generate).unwrap();
        assert_eq!(result_cache.similar_answer(&question, -1.0), None, "not understood yet");
        question.embed(&mut encoder, &options).unwrap();
        question
    };
    let [first, second] = ["one", "two"].map(|text| CachedAnswer {
        text: text.to_owned(),
        tokens: 1,
        finish_reason: FinishReason::Eos,
    });
    let prompts = [words(20, 1), words(20, 2)];
    result_cache.insert_answer(&ask(&prompts[0], 8), &first).unwrap();
    result_cache.insert_answer(&ask(&prompts[1], 8), &second).unwrap();
    // One word of twenty differs.
    let near = ask(&prompts[0].replacen("w6", "w7", 1), 8);
    assert_eq!(result_cache.answer(&near), None);
    let (found, similarity) = result_cache.similar_answer(&near, 0.5).unwrap();
    assert_eq!(found, first);
    assert!(similarity < 0.999_99 && result_cache.similar_answer(&near, similarity + 1e-4).is_none());
    assert_eq!(result_cache.similar_answer(&ask(&prompts[0], 9), -1.0), None, "other options");
}

#[test]
fn rejected_texts_change_nothing() {
    let golden = texts::load("t5", None);
    let model = golden::model(&golden.file, siskin::DeviceKind::Cpu, 2, siskin::CpuFeatures::NONE);
    let options = SessionOptions { context: 32, ..SessionOptions::default() };
    let mut context = model.context(&options, 2, 1).unwrap();
    let sequence = context.create();
    let say = |context: &mut siskin::Context, tokens: &[u32]| {
        context.forward(&[siskin::BatchEntry::new(sequence, tokens, OutputRows::Last)])?;
        Ok::<_, siskin::Error>(context.output(0).to_vec())
    };
    let read = |context: &mut siskin::Context, text: &EncoderInput, sequence: usize, outputs| {
        let EncoderInput { ids, token_type_ids, features, global_positions, padding_token, adapter } = text;
        let (tokens, padding_token) = (&ids[..], *padding_token);
        context.encode(&[SequenceInput {
            sequence,
            tokens,
            token_type_ids,
            features,
            global_positions,
            padding_token,
            outputs,
            adapter: *adapter,
        }])
    };
    read(&mut context, &golden.texts[0], sequence, OutputRows::None).unwrap();
    say(&mut context, &[5]).unwrap();
    let want = say(&mut context, &[6]).unwrap();
    let kind = |outcome: siskin::Result<()>| outcome.unwrap_err().kind();
    context.truncate(sequence, 1).unwrap();
    let rejected = [
        EncoderInput::from(vec![9999]),
        EncoderInput { token_type_ids: vec![7], ..EncoderInput::from(vec![5]) },
    ];
    for text in &rejected {
        assert_eq!(kind(read(&mut context, text, sequence, OutputRows::None)), ErrorKind::Argument);
    }
    let twice = [1, 0, 1];
    assert_eq!(
        kind(read(&mut context, &golden.texts[1], sequence, OutputRows::At(&twice))),
        ErrorKind::Argument
    );
    assert!(read(&mut context, &golden.texts[1], 99, OutputRows::None).is_err());
    assert_eq!(context.output(0), want, "what was there is there");
    assert_eq!(say(&mut context, &[6]).unwrap(), want, "the text is still remembered");
}

#[test]
fn a_result_cache_that_another_program_wrote_is_read() {
    let bytes = std::fs::read(paths::data("fuzz").join("result_cache/vectors.memo")).unwrap();
    let result_cache = ResultCache::new(ResultCacheOptions::default());
    result_cache.load(&bytes).unwrap();
    let key = |byte: u8| siskin::result_cache::Key::from_bytes([byte; 32]);
    assert_eq!(result_cache.get(&key(4)).as_deref(), Some(&b"four"[..]));
    let near = result_cache.similar(&key(7), &[6.0, 0.0, -8.0], 0.9).unwrap();
    assert!(*near.value == *b"two" && (near.similarity - 1.0).abs() < 1e-6);
    assert_eq!(result_cache.similar(&key(7), &[0.0, 1.0, 0.0], 0.1), None);
}
