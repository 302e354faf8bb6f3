//! Beam search, greedy decoding and logits processors compared to Transformers, and all ways of running them compared
//! to each other.

use std::collections::HashMap;
use std::path::Path;

use serde_json::json;
use siskin::beam_search::{FinishedHypothesis, SearchOptions};
use siskin::encoder::{EncoderInput, OverflowMode};
use siskin::file::File;
use siskin::sample::SamplerOptions;
use siskin::seq2seq::GeneratedText;
use siskin::{
    CpuFeatures, DeviceKind, ErrorKind, Model, Seq2SeqGenerateOptions, Seq2SeqOptions, SessionOptions,
};
use siskin_convert::{OpenOptions, PackedCache, open_any};
use siskin_tests::golden::model;
use siskin_tests::paths;
use siskin_tests::search::{SearchCase, cases, text, with_tokenizer};

/// Returns the results of one session.
fn find(model: &Model, case: &SearchCase) -> Vec<FinishedHypothesis> {
    let sampler = SamplerOptions {
        logits_processors: case.options.logits_processors.clone(),
        repetition_penalty: 1.0,
        ..SamplerOptions::greedy()
    };
    let options = SessionOptions { context: 48, forks: case.options.beams, sampler, ..Default::default() };
    let mut session = model.session(options).expect("a session opens");
    let mut prompt = case.source.clone();
    if case.reads {
        session.encode(&EncoderInput::from(case.source.clone())).expect("the model reads");
        let start = model.file().metadata().config["decoder_start_token_id"].as_u64().expect("a start");
        prompt = [&[start as u32], &*case.prefix].concat();
    }
    session.prefill(&prompt).expect("the model runs");
    if case.options.beams > 1 {
        return session.search(&case.options).expect("something is found");
    }
    let mut tokens = Vec::new();
    while tokens.len() < case.options.max_tokens {
        let token = session.next_token().expect("a token is chosen").expect("no tokenizer ends the text");
        tokens.push(token.id);
        if case.options.logits_processors.eos_token_ids.contains(&token.id) {
            break;
        }
    }
    vec![FinishedHypothesis { tokens, score: f64::NAN }]
}

fn differs(got: &[FinishedHypothesis], want: &[FinishedHypothesis]) -> bool {
    let alike = |(got, want): (&FinishedHypothesis, &FinishedHypothesis)| {
        got.tokens == want.tokens && (want.score.is_nan() || (got.score - want.score).abs() < 1e-4)
    };
    got.len() != want.len() || !got.iter().zip(want).all(alike)
}

#[test]
fn what_is_found_is_what_transformers_finds() {
    let mut report = String::new();
    let mut models: HashMap<String, Model> = HashMap::new();
    let all: Vec<SearchCase> = ["beams.json", "groups.json"].into_iter().flat_map(cases).collect();
    for case in &all {
        let open = || {
            let options = OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() };
            let file = open_any(paths::data(&case.model), &options).expect("a golden model packs");
            model(&file, DeviceKind::Cpu, 2, CpuFeatures::NONE)
        };
        let model = models.entry(case.model.clone()).or_insert_with(open);
        let got = find(model, case);
        if differs(&got, &case.found) {
            report += &format!("{case:?}\n  got {got:?}\n");
        }
    }
    let count = report.lines().count() / 2;
    assert!(report.is_empty(), "{count} of {}:\n{report}", all.len());
}

/// Packs a model whose texts are token numbers.
fn spelled(name: &str, from: &str, words: &[(u32, &str)], config: &serde_json::Value) -> File {
    with_tokenizer(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("search"), name, from, words, config)
}

fn opened(file: &File, threads: usize) -> Model {
    model(file, DeviceKind::Cpu, threads, CpuFeatures::NONE)
}

fn found(candidates: &[GeneratedText]) -> Vec<FinishedHypothesis> {
    candidates.iter().map(|one| FinishedHypothesis { tokens: one.tokens.clone(), score: one.score }).collect()
}

#[test]
fn texts_together_are_written_as_each_alone() {
    let mut all: HashMap<String, Vec<SearchCase>> = HashMap::new();
    for case in ["beams.json", "groups.json"].into_iter().flat_map(cases) {
        if ["bart", "t5", "gpt2"].iter().any(|name| case.model.ends_with(&format!("/{name}")))
            && case.prefix.is_empty()
        {
            all.entry(case.model.clone()).or_default().push(case);
        }
    }
    for (name, cases) in &all {
        let file = spelled(&name.replace('/', "-"), name, &[], &json!({}));
        let texts: Vec<String> = cases.iter().map(|case| text(&case.source)).collect();
        let around = Some((Vec::new(), Vec::new()));
        let mut first: Vec<Vec<Vec<GeneratedText>>> = Vec::new();
        for (threads, rows, batch) in [(1, 1, 1), (2, 40, 64), (2, 7, 1000)] {
            let model = opened(&file, threads);
            let options = Seq2SeqOptions { rows, batch, context: 48, ..Seq2SeqOptions::default() };
            let mut writer = model.seq2seq(options).expect("a writer opens");
            for (index, case) in cases.iter().enumerate() {
                let writing = Seq2SeqGenerateOptions {
                    search: case.options.clone(),
                    around: around.clone(),
                    ..Seq2SeqGenerateOptions::default()
                };
                let written = writer.generate(&texts, &writing).expect("texts are written");
                assert!(!differs(&found(&written[index]), &case.found), "{name}, case {index}: {written:?}");
                match first.get(index) {
                    None => first.push(written),
                    Some(first) => {
                        assert_eq!(*first, written, "{name}, case {index}, {rows} rows, {threads} threads")
                    }
                }
            }
        }
    }
}

#[test]
fn drawn_texts_are_the_same_for_a_seed_wherever_they_stand() {
    let file = spelled("drawn", "golden-texts/bart", &[], &json!({}));
    let model = opened(&file, 2);
    let search =
        SearchOptions { beams: 1, num_return_sequences: 3, max_tokens: 8, ..SearchOptions::default() };
    let sampler = SamplerOptions { seed: 5, ..SamplerOptions::default() };
    let writing = Seq2SeqGenerateOptions { search, sampler, ..Seq2SeqGenerateOptions::default() };
    let mut writer = model.seq2seq(Seq2SeqOptions { rows: 7, ..Seq2SeqOptions::default() }).unwrap();
    let texts = ["t4 t5 t6", "t9", "t30 t31 t32 t33", "t9"];
    let all = writer.generate(&texts, &writing).unwrap();
    assert_eq!(all[1], all[3]);
    assert_ne!(all[0], all[1]);
    assert!(all[0][0] != all[0][1] && all[0].len() == 3, "each has a seed of its own");
    assert_eq!(writer.generate(&texts[..1], &writing).unwrap()[0], all[0]);
    let greedy = Seq2SeqGenerateOptions { sampler: SamplerOptions::greedy(), ..writing };
    assert_eq!(writer.generate(&texts, &greedy).unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn long_texts_are_rejected_cut_or_read_in_parts() {
    let file = spelled("long", "golden-texts/bart", &[], &json!({}));
    let model = opened(&file, 2);
    let search = SearchOptions { beams: 2, max_tokens: 5, ..SearchOptions::default() };
    let mut writing = Seq2SeqGenerateOptions {
        search,
        around: Some((vec![0], vec![2])),
        ..Seq2SeqGenerateOptions::default()
    };
    let mut writer = model.seq2seq(Seq2SeqOptions { source: 8, ..Seq2SeqOptions::default() }).unwrap();
    let ids: Vec<u32> = (10..25).collect();
    let texts = [text(&ids)];
    let error = writer.generate(&texts, &writing).unwrap_err();
    assert_eq!((error.kind(), error.location()), (ErrorKind::TooLong, "text 0: text"));
    let parts = |writer: &mut siskin::Seq2Seq, writing: &Seq2SeqGenerateOptions, parts: &[&[u32]]| {
        let texts: Vec<String> = parts.iter().map(|ids| text(ids)).collect();
        let all = writer
            .generate(&texts, &Seq2SeqGenerateOptions { overflow: OverflowMode::Error, ..writing.clone() })
            .unwrap();
        let tokens: Vec<u32> = all.iter().flat_map(|one| one[0].tokens.clone()).collect();
        (tokens, all.iter().map(|one| &*one[0].text).collect::<Vec<_>>().join(" "))
    };
    let got = |writer: &mut siskin::Seq2Seq, writing: &Seq2SeqGenerateOptions| {
        let one = writer.generate(&texts, writing).unwrap().remove(0).remove(0);
        (one.tokens, one.text)
    };
    writing.overflow = OverflowMode::Truncate;
    assert_eq!(got(&mut writer, &writing), parts(&mut writer, &writing, &[&ids[..6]]));
    writing.overflow = OverflowMode::Window { overlap: 0 };
    assert_eq!(
        got(&mut writer, &writing),
        parts(&mut writer, &writing, &[&ids[..6], &ids[6..12], &ids[12..]])
    );
    writing.overflow = OverflowMode::Window { overlap: 2 };
    let want = parts(&mut writer, &writing, &[&ids[..6], &ids[4..10], &ids[8..14], &ids[12..]]);
    assert_eq!(got(&mut writer, &writing), want);
    writing.overflow = OverflowMode::Window { overlap: 6 };
    assert_eq!(writer.generate(&texts, &writing).unwrap_err().kind(), ErrorKind::TooLong);
}

#[test]
fn languages_are_told_as_each_family_was_taught() {
    let words = &[(3, "__de__"), (4, "__en__"), (2, "</s>")];
    let m2m = opened(&spelled("m2m", "golden-texts/m2m", words, &json!({})), 2);
    let writing = Seq2SeqGenerateOptions::translation(&m2m, Some("de"), Some("en")).unwrap();
    assert_eq!(writing.around, Some((vec![3], vec![2])));
    assert_eq!(writing.search.logits_processors.forced_bos_token_id, Some(4));
    assert_eq!(
        Seq2SeqGenerateOptions::translation(&m2m, Some("de"), Some("fr")).unwrap_err().kind(),
        ErrorKind::Argument
    );
    assert_eq!(
        Seq2SeqGenerateOptions::translation(&m2m, None, Some("en")).unwrap_err().kind(),
        ErrorKind::Argument
    );
    let mut writer = m2m.seq2seq(Seq2SeqOptions::default()).unwrap();
    let texts = writer.translate(&["t9 t10", "t11"], "de", "en").unwrap();
    assert!(texts.iter().all(|candidates| candidates[0].tokens[0] == 4));

    let words = &[(3, "de_DE"), (4, "en_XX"), (2, "</s>")];
    let fifty = opened(&spelled("mbart50", "golden-texts/mbart", words, &json!({})), 2);
    let writing = Seq2SeqGenerateOptions::translation(&fifty, Some("de"), Some("en_XX")).unwrap();
    assert_eq!(
        (writing.around, writing.search.logits_processors.forced_bos_token_id),
        (Some((vec![3], vec![2])), Some(4))
    );
    let first = spelled("mbart", "golden-texts/mbart", words, &json!({"decoder_start_token_id": 4}));
    let writing = Seq2SeqGenerateOptions::translation(&opened(&first, 1), Some("de"), Some("en")).unwrap();
    assert_eq!((writing.around, writing.start), (Some((vec![], vec![2, 3])), vec![4]));

    let words = &[(3, ">>deu<<"), (4, ">>nld<<"), (0, "</s>")];
    let many = opened(&spelled("marian-many", "golden-texts/marian", words, &json!({})), 2);
    let writing = Seq2SeqGenerateOptions::translation(&many, None, Some("deu")).unwrap();
    assert_eq!(writing.around.map(|around| around.0), Some(vec![3]));
    let one = opened(&spelled("marian", "golden-texts/marian", &[], &json!({})), 2);
    assert_eq!(Seq2SeqGenerateOptions::translation(&one, None, None).unwrap().around, None);
}

#[test]
fn tasks_bring_their_prefix_and_their_settings() {
    let tasks = json!({"task_specific_params": {
        "summarization": {"num_beams": 4, "length_penalty": 2.0, "early_stopping": true, "min_length": 30,
            "max_length": 200, "no_repeat_ngram_size": 3, "prefix": "summarize: "},
        "translation_en_to_de": {"num_beams": 3, "prefix": "translate English to German: "}}});
    let t5 = opened(&spelled("t5-tasks", "golden-texts/t5", &[], &tasks), 2);
    let summary = Seq2SeqGenerateOptions::summary(&t5).unwrap();
    assert_eq!(summary.prefix, "summarize: ");
    let SearchOptions { beams, length_penalty, max_tokens, logits_processors: rules, .. } = &summary.search;
    assert_eq!((*beams, *length_penalty, *max_tokens), (4, 2.0, 199));
    assert_eq!((rules.min_length, rules.no_repeat_ngram_size, &rules.eos_token_ids), (30, 3, &vec![1]));
    let writing = Seq2SeqGenerateOptions::translation(&t5, Some("en"), Some("de")).unwrap();
    assert_eq!((&*writing.prefix, writing.search.beams), ("translate English to German: ", 3));
    let writing = Seq2SeqGenerateOptions::translation(&t5, Some("de"), Some("Dutch")).unwrap();
    assert_eq!((&*writing.prefix, writing.search.beams), ("translate German to Dutch: ", 1));
}

#[test]
fn what_cannot_be_searched_is_rejected() {
    let file = spelled("rejected", "golden/gpt2", &[], &json!({}));
    let model = opened(&file, 1);
    let mut session = model.session(SessionOptions { forks: 2, ..Default::default() }).unwrap();
    let kind =
        |session: &mut siskin::Session, options: &SearchOptions| session.search(options).unwrap_err().kind();
    let fine = SearchOptions { beams: 2, max_tokens: 3, ..SearchOptions::default() };
    assert_eq!(kind(&mut session, &fine), ErrorKind::State, "no tokens to continue");
    session.prefill(&[5, 6]).unwrap();
    assert_eq!(session.search(&fine).unwrap()[0].tokens.len(), 3);
    for wrong in [
        SearchOptions { beams: 0, ..fine.clone() },
        SearchOptions { beams: 9, ..fine.clone() },
        SearchOptions { num_beam_groups: 3, ..fine.clone() },
        SearchOptions { num_return_sequences: 3, ..fine.clone() },
        SearchOptions { length_penalty: f32::NAN, ..fine.clone() },
        SearchOptions { diversity_penalty: -1.0, ..fine.clone() },
        SearchOptions { max_tokens: 0, ..fine.clone() },
    ] {
        assert_eq!(kind(&mut session, &wrong), ErrorKind::Argument, "{wrong:?}");
    }
    assert_eq!(session.position(), 2, "a search leaves the session as it was");
    let mut writer = model.seq2seq(Seq2SeqOptions { context: 8, ..Seq2SeqOptions::default() }).unwrap();
    let writing = Seq2SeqGenerateOptions { search: fine, ..Seq2SeqGenerateOptions::default() };
    let long = text(&(10..18).collect::<Vec<_>>());
    assert_eq!(writer.generate(&[long], &writing).unwrap_err().kind(), ErrorKind::TooLong);
    assert_eq!(writer.generate(&[""], &writing).unwrap_err().kind(), ErrorKind::Argument);
    assert!(writer.generate::<&str>(&[], &writing).unwrap().is_empty());
}

#[test]
fn what_would_have_no_effect_is_rejected() {
    let model = opened(&spelled("effects", "golden-texts/bart", &[], &json!({})), 1);
    let mut writer = model.seq2seq(Seq2SeqOptions::default()).unwrap();
    let mut place = |writing: &Seq2SeqGenerateOptions| {
        let error = writer.generate(&["t4 t5"], writing).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        error.location().to_owned()
    };
    let rules = |rules: siskin::logits_processors::LogitsProcessorOptions| SearchOptions {
        logits_processors: rules,
        max_tokens: 4,
        ..Default::default()
    };
    let far = 1 << 20;
    for (search, want) in [
        (SearchOptions { beams: 0, ..Default::default() }, "beams"),
        (SearchOptions { beams: 1, num_beam_groups: 2, ..Default::default() }, "num_beam_groups"),
        (SearchOptions { beams: 1, diversity_penalty: 0.5, ..Default::default() }, "diversity_penalty"),
        (SearchOptions { beams: 2, diversity_penalty: 0.5, ..Default::default() }, "diversity_penalty"),
        (SearchOptions { beams: 2, num_return_sequences: 3, ..Default::default() }, "num_return_sequences"),
        (SearchOptions { beams: 1, num_return_sequences: 3, ..Default::default() }, "num_return_sequences"),
        (
            rules(siskin::logits_processors::LogitsProcessorOptions { min_tokens: 5, ..Default::default() }),
            "min_tokens",
        ),
        (
            rules(siskin::logits_processors::LogitsProcessorOptions {
                suppress: vec![3, far],
                ..Default::default()
            }),
            "suppress",
        ),
        (
            rules(siskin::logits_processors::LogitsProcessorOptions {
                bad_words: vec![vec![far]],
                ..Default::default()
            }),
            "bad_words",
        ),
        (
            rules(siskin::logits_processors::LogitsProcessorOptions {
                forced_bos_token_id: Some(far),
                ..Default::default()
            }),
            "forced_bos_token_id",
        ),
    ] {
        let writing = Seq2SeqGenerateOptions { search: search.clone(), ..Seq2SeqGenerateOptions::default() };
        assert_eq!(place(&writing), want, "{search:?}");
        let one = SearchOptions { beams: search.beams.min(1), ..search.clone() };
        if search.logits_processors != siskin::logits_processors::LogitsProcessorOptions::default() {
            assert_eq!(
                place(&Seq2SeqGenerateOptions { search: one, ..Seq2SeqGenerateOptions::default() }),
                want,
                "{search:?}"
            );
        }
    }
    let search = SearchOptions { beams: 2, ..Default::default() };
    let writing = Seq2SeqGenerateOptions {
        search,
        sampler: SamplerOptions::default(),
        ..Seq2SeqGenerateOptions::default()
    };
    assert_eq!(place(&writing), "sampler");
    let search = SearchOptions { beams: 1, num_return_sequences: 5000, ..Default::default() };
    let writing = Seq2SeqGenerateOptions {
        search,
        sampler: SamplerOptions::default(),
        ..Seq2SeqGenerateOptions::default()
    };
    assert_eq!(place(&writing), "num_return_sequences");
    // Settings for tokens outside the vocabulary are ignored.
    let config = json!({"suppress_tokens": [5, far], "bad_words_ids": [[far], [6]]});
    let rules = Seq2SeqGenerateOptions::of(&opened(&spelled("absent", "golden-texts/bart", &[], &config), 1))
        .unwrap()
        .search
        .logits_processors;
    assert_eq!((rules.suppress, rules.bad_words), (vec![5], vec![vec![6]]));
}

#[test]
fn parts_of_a_long_text_give_the_likeliest_wholes() {
    let model = opened(&spelled("wholes", "golden-texts/bart", &[], &json!({})), 2);
    let search =
        SearchOptions { beams: 3, num_return_sequences: 3, max_tokens: 5, ..SearchOptions::default() };
    let mut writing = Seq2SeqGenerateOptions {
        search,
        around: Some((vec![0], vec![2])),
        ..Seq2SeqGenerateOptions::default()
    };
    let mut writer = model.seq2seq(Seq2SeqOptions { source: 8, ..Seq2SeqOptions::default() }).unwrap();
    let ids: Vec<u32> = (10..22).collect();
    let parts = writer.generate(&[text(&ids[..6]), text(&ids[6..])], &writing).unwrap();
    let mut want: Vec<f64> =
        parts[0].iter().flat_map(|a| parts[1].iter().map(|b| (a.score + b.score) / 2.0)).collect();
    want.sort_by(|a, b| b.total_cmp(a));
    writing.overflow = OverflowMode::Window { overlap: 0 };
    let got = writer.generate(&[text(&ids)], &writing).unwrap().remove(0);
    let scores: Vec<f64> = got.iter().map(|one| one.score).collect();
    assert_eq!(scores, want[..3]);
    assert_eq!(got[0].tokens, [&*parts[0][0].tokens, &parts[1][0].tokens].concat());
}

#[test]
fn a_session_reads_its_prompt_where_the_model_has_an_encoder() {
    let file = spelled("session", "golden-texts/bart", &[(2, "</s>")], &json!({}));
    let model = opened(&file, 2);
    let options = SessionOptions { context: 48, sampler: SamplerOptions::greedy(), ..Default::default() };
    let mut session = model.session(options).unwrap();
    let generate = siskin::GenerateOptions { max_tokens: 6, ..Default::default() };
    let mut say = |prompt: &str| -> String {
        session.generate(prompt, generate).unwrap().map(|piece| piece.unwrap()).collect()
    };
    let (first, second) = (say("t9 t10 t11"), say("t40"));
    assert_eq!(say("t9 t10 t11"), first, "what was read before is forgotten");
    let mut writer = model.seq2seq(Seq2SeqOptions { context: 48, ..Seq2SeqOptions::default() }).unwrap();
    let search =
        SearchOptions { beams: 1, max_tokens: 6, ..Seq2SeqGenerateOptions::of(&model).unwrap().search };
    let rules = siskin::logits_processors::LogitsProcessorOptions {
        eos_token_ids: search.logits_processors.eos_token_ids.clone(),
        ..Default::default()
    };
    let writing = Seq2SeqGenerateOptions {
        search: SearchOptions { logits_processors: rules, ..search },
        ..Seq2SeqGenerateOptions::default()
    };
    let all = writer.generate(&["t9 t10 t11", "t40"], &writing).unwrap();
    let squeeze = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!([squeeze(&all[0][0].text), squeeze(&all[1][0].text)], [squeeze(&first), squeeze(&second)]);
}
