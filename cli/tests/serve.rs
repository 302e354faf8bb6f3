//! `siskin serve --stdio` from a client: lines in, lines out.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A chat template that uses the current date.
const TEMPLATE: &str = "{% if strftime_now('%Y')|int < 2020 %}{{ raise_exception('no date') }}{% endif %}\
                        {% for message in messages %}{{ message.content }} {% endfor %}w9";

fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(path)
}

/// A tiny golden model with a tokenizer of the words w5 to w79 and a chat template.
fn model(folder: &str) -> String {
    // Tests run in parallel.
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed).to_string();
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("serve").join(number);
    std::fs::create_dir_all(&place).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(data(folder).join(name), place.join(name)).unwrap();
    }
    std::fs::copy(data("golden-exits/words.json"), place.join("tokenizer.json")).unwrap();
    let config = json!({ "chat_template": TEMPLATE }).to_string();
    std::fs::write(place.join("tokenizer_config.json"), config).unwrap();
    place.to_str().unwrap().to_owned()
}

fn siskin(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siskin"));
    command.args(arguments).args(["--no-cache", "--quiet"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the replies of one process to all of these lines.
fn serve(model: &str, options: &[&str], lines: &[u8]) -> Vec<Value> {
    let mut child = siskin(&[&["serve", "--stdio", model], options].concat()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    values(&output)
}

fn values(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The same, grouped by request.
fn ask(model: &str, requests: &[Value]) -> Vec<Value> {
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    serve(model, &[], lines.as_bytes())
}

/// Returns the output of another command with `--json`.
fn printed(arguments: &[&str]) -> Vec<Value> {
    let output = siskin(arguments).arg("--json").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    values(&output)
}

/// Returns the whole text of an answer, and its last reply.
fn whole(answers: &[Value], id: &Value) -> (String, Value) {
    let mine: Vec<_> = answers.iter().filter(|answer| answer["id"] == *id).collect();
    let (last, pieces) = mine.split_last().unwrap();
    let text = pieces.iter().map(|piece| piece["text"].as_str().unwrap()).collect();
    (text, (*last).clone())
}

#[test]
fn texts_are_those_of_the_command() {
    let llama = model("golden/llama");
    let expected =
        printed(&["run", &llama, "w5 w6", "--raw", "--greedy", "--max-tokens", "7"])[0]["text"].clone();
    let answers = ask(
        &llama,
        &[
            json!({"id": 1, "prompt": "w5 w6", "temperature": 0, "max_tokens": 7}),
            json!({"id": "two", "prompt": "w7 w8", "seed": 3, "max_tokens": 5, "top_k": null}),
            json!({"id": "three", "prompt": "w7 w8", "seed": 3, "max_tokens": 5}),
            json!({"id": 4, "prompt": "w5 w6", "greedy": true, "max_tokens": 7}),
            json!({"prompt": "w5 w6", "greedy": true, "max_tokens": 0}),
        ],
    );
    let (text, done) = whole(&answers, &json!(1));
    assert_eq!((json!(text), &done["done"]["tokens"]), (expected.clone(), &json!(7)));
    assert_eq!(done["done"]["finish_reason"], "length");
    let [two, three] = ["two", "three"].map(|id| whole(&answers, &json!(id)).0);
    assert!(!two.is_empty());
    assert_eq!(two, three, "a seed says where random numbers start, each time");
    assert_eq!(json!(whole(&answers, &json!(4)).0), expected);
    let last = answers.last().unwrap();
    assert!(last.get("id").is_none() && last["done"]["tokens"] == 0, "{last}");
    // A stop string ends the answer and is not part of it.
    let expected = expected.as_str().unwrap();
    let stop = &expected[expected.rfind('w').unwrap()..];
    let answers = ask(&llama, &[json!({"id": 1, "prompt": "w5 w6", "greedy": true, "stop": [stop]})]);
    let (text, done) = whole(&answers, &json!(1));
    assert_eq!(Some(text.as_str()), expected.split(stop).next());
    assert!(!text.is_empty() && done["done"]["finish_reason"] == "stop", "{text} {done}");
    // `--max-tokens` bounds every request.
    let lines = b"{\"prompt\": \"w5 w6\", \"greedy\": true, \"max_tokens\": 90}";
    let answers = serve(&llama, &["--max-tokens", "3"], lines);
    assert_eq!(answers.last().unwrap()["done"]["tokens"], 3);
}

#[test]
fn results_are_what_the_commands_print() {
    let rows = [
        ("golden-texts/bert", "embed", vec!["w5 w6", "w7"], json!({})),
        ("golden-texts/bert", "embed", vec!["w5 w6", "w7"], json!({"pooling": "cls", "dimensions": 3})),
        ("golden-texts/bert-classes", "classify", vec!["w5 w6", "w7"], json!({})),
        ("golden-texts/bert-labels", "tag", vec!["w5 w6", "w7"], json!({"overflow": "window", "overlap": 1})),
        (
            "golden-texts/bart",
            "generate",
            vec!["w5 w6", "w7"],
            json!({"beams": 3, "n_best": 2, "max_tokens": 6}),
        ),
        (
            "golden-texts/bart",
            "summarize",
            vec!["w5 w6"],
            json!({"max_tokens": 5, "early_stopping": "never", "beams": 2}),
        ),
    ];
    for (folder, command, texts, options) in rows {
        let model = model(folder);
        let mut arguments = vec![command.to_owned(), model.clone()];
        arguments.extend(texts.iter().map(|text| (*text).to_owned()));
        for (name, value) in options.as_object().unwrap() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            arguments.extend([format!("--{}", name.replace('_', "-")), value]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut request = options;
        request["id"] = json!(1);
        request[command] = json!(texts);
        // Twice, to cover state that is kept between requests.
        let answers = ask(&model, &[request.clone(), request]);
        assert_eq!(answers.len(), 2);
        for answer in answers {
            assert_eq!(answer["done"]["results"], json!(printed(&arguments)), "{command}: {answer}");
        }
    }
}

#[test]
fn questions_are_answered_about_texts() {
    let answers = model("golden-texts/bert-answer");
    let texts = ["w10 w11 w12", "w13 w14"];
    let found = ask(&answers, &[json!({"answer": texts, "question": "w5"})]);
    let expected = printed(&["answer", &answers, "w5", texts[0], texts[1]]);
    assert_eq!(found[0]["done"]["results"], json!(expected));
    let (classes, long) = (model("golden-texts/bert-classes"), "w7 ".repeat(70));
    let found = ask(&classes, &[json!({"rerank": ["w6", long], "query": "w5", "overflow": "truncate"})]);
    let expected = printed(&["rerank", &classes, "w5", "w6", &long, "--overflow", "truncate"]);
    assert_eq!(found[0]["done"]["results"], json!(expected));
    let bert = model("golden-texts/bert");
    let found = ask(&bert, &[json!({"fill_mask": ["w5 [MASK] w6"], "top_k": 2})]);
    let expected = printed(&["fill-mask", &bert, "w5 [MASK] w6", "--top-k", "2"]);
    assert_eq!(found[0]["done"]["results"], json!(expected));
}

#[test]
fn who_asks_for_more_than_there_is_room_for_gets_what_there_is() {
    let llama = model("golden/llama");
    let lines = b"{\"generate\": [\"w5 w6\", \"w7\"], \"max_tokens\": 5000, \"min_tokens\": 5000}";
    for (options, room) in [(&["--context", "16"][..], 16), (&["--context", "24"], 24)] {
        let answers = serve(&llama, options, lines);
        let lengths = answers[0]["done"]["results"].as_array().unwrap().iter();
        let lengths: Vec<_> =
            lengths.map(|result| result["text"].as_str().unwrap().split(' ').count()).collect();
        assert!(lengths.iter().all(|&length| (room / 2..=room + 1).contains(&length)), "{answers:?}");
    }
}

/// The code and place of the error in a reply.
fn error(answer: &Value) -> (u64, &str) {
    (answer["error"]["code"].as_u64().unwrap(), answer["error"]["location"].as_str().unwrap())
}

#[test]
fn bad_lines_are_answered_and_the_next_one_is_read() {
    let llama = model("golden/llama");
    let long = format!("{{\"id\": 9, \"prompt\": \"{}\"}}", "w5 ".repeat(100_000));
    let rows: [(&[u8], u64, &str); 16] = [
        (b"no JSON", 200, "line 1"),
        (b"[1, 2]", 200, "line 2"),
        (b"{\"id\": 3}", 200, "request"),
        (b"{\"id\": [4], \"prompt\": \"w5\"}", 200, "line 4: id"),
        (b"{\"id\": 5, \"prompt\": 7}", 200, "prompt"),
        (b"{\"id\": 6, \"prompt\": \"w5\", \"temprature\": 1}", 200, "temprature"),
        (b"{\"id\": 7, \"prompt\": \"w5\", \"top_p\": 7}", 200, "top_p"),
        (b"{\"id\": 8, \"prompt\": \"w5\", \"seed\": \"x\"}", 200, "seed"),
        (long.as_bytes(), 201, "line 9"),
        (b"{\"id\": 10, \"embed\": [\"w5\"]}", 102, "model"),
        (b"{\"id\": 11, \"transcribe\": \"AA=A\"}", 200, "transcribe"),
        (b"\xff\xfe", 200, "line 12"),
        (b"{\"id\": 13, \"cancel\": 1}", 200, "id"),
        (b"{\"id\": 14, \"chat\": [{\"role\": \"user\"}]}", 200, "chat[0].content"),
        (b"{\"id\": 15, \"chat\": [], \"max_tokens\": 3}", 200, "chat"),
        (b"{\"id\": 16, \"prompt\": \"\"}", 200, "prompt"),
    ];
    let mut lines = rows.map(|row| row.0).join(&b'\n');
    // An empty line is ignored; the last line has no line ending.
    lines.extend(b"\n\n{\"id\": 17, \"prompt\": \"w5 w6\", \"greedy\": true, \"max_tokens\": 1}");
    let answers = serve(&llama, &["--max-request-bytes", "1000"], &lines);
    for ((line, code, place), (number, answer)) in rows.iter().zip((1..).zip(&answers)) {
        let line = String::from_utf8_lossy(&line[..line.len().min(80)]);
        assert_eq!(error(answer), (*code, *place), "{line}: {answer}");
        let named = answer.get("id").is_none_or(|id| *id == number);
        assert!(named && (answer.get("id").is_some() != place.starts_with("line")), "{answer}");
    }
    assert_eq!(answers[rows.len()]["id"], 17);
    for (row, message) in [
        (0, "invalid JSON at column 2: expected ident"),
        (1, "expected a JSON object, got an array"),
        (4, "expected a string, got 7"),
        (7, "expected a non-negative integer, got \"x\""),
        (8, "line too long: more than 1000 bytes; see --max-request-bytes"),
    ] {
        assert_eq!(answers[row]["error"]["message"], message);
    }
    assert_eq!(answers.last().unwrap()["done"]["tokens"], 1);
    let deep = format!("{{\"prompt\": {}", "[".repeat(100_000));
    assert_eq!(error(&serve(&llama, &[], deep.as_bytes())[0]).0, 200);
}

#[test]
fn requests_that_a_model_cannot_answer_are_rejected() {
    let bert = model("golden-texts/bert");
    let requests = [
        json!({"id": 1, "prompt": "w5"}),
        json!({"id": 2, "chat": [{"role": "user", "content": "w5"}]}),
        json!({"id": 3, "classify": ["w5"]}),
        json!({"id": 4, "translate": ["w5"]}),
        json!({"id": 5, "transcribe": "UklGRg"}),
        json!({"id": 6, "embed": ["w5"], "prompt_name": "no such prompt"}),
        json!({"id": 7, "embed": ["w5 ".repeat(4000)]}),
        json!({"id": 8, "embed": []}),
        json!({"id": 9, "embed": vec!["w"; 5000]}),
        json!({"id": 10, "transcribe": "UklGRg", "translate": true}),
        json!({"id": 11, "embed": {"text": "w".repeat(10_000)}}),
    ];
    let answers = ask(&bert, &requests);
    let codes: Vec<u64> = answers.iter().map(|answer| error(answer).0).collect();
    assert_eq!(codes, [102, 102, 102, 102, 101, 200, 201, 200, 201, 101, 200]);
    assert!(answers.iter().all(|answer| answer.to_string().len() < 1000), "a rejection repeats no request");
}

#[test]
fn one_text_needs_no_list() {
    let bert = model("golden-texts/bert");
    let requests = [json!({"id": 1, "embed": ["w5"]}), json!({"id": 1, "embed": "w5"})];
    let answers = ask(&bert, &requests);
    assert_eq!(answers[0], answers[1]);
}

/// An interactive process.
struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(model: &str, options: &[&str]) -> Self {
        let mut child = siskin(&[&["serve", "--stdio", model], options].concat()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn say(&mut self, request: &Value) {
        self.input.write_all(format!("{request}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the last reply of an answer.
    fn end(&mut self) -> Value {
        loop {
            let answer = self.hear();
            if answer.get("text").is_none() {
                return answer;
            }
        }
    }
}

#[test]
fn a_request_is_canceled_while_it_runs_and_while_it_waits() {
    // Throttled so that no answer ends within a minute by itself.
    let mut running = Running::start(&model("golden/llama"), &["--throttle", "0.5/s"]);
    let begun = std::time::Instant::now();
    for id in ["first", "second", "third"] {
        running.say(&json!({"id": id, "prompt": "w5 w6", "temperature": 0, "max_tokens": 50}));
    }
    assert_eq!(running.hear()["id"], "first");
    running.say(&json!({"cancel": "no such request"}));
    running.say(&json!({"cancel": "second"}));
    running.say(&json!({"cancel": "first"}));
    let end = running.end();
    assert_eq!((&end["id"], &end["done"]["finish_reason"]), (&json!("first"), &json!("canceled")));
    assert!(end["done"]["tokens"].as_u64().unwrap() < 50);
    let end = running.end();
    assert_eq!((&end["id"], &end["done"]["finish_reason"]), (&json!("second"), &json!("canceled")));
    assert_eq!(running.hear()["id"], "third", "only one request is canceled");
    running.say(&json!({"cancel": "third"}));
    assert_eq!(running.end()["id"], "third");
    assert!(begun.elapsed().as_secs() < 50);
    running.say(&json!({"id": 4, "stats": true}));
    assert_eq!(running.hear()["done"]["requests"], 4);
    drop(running.input);
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn a_canceled_request_gives_what_might_have_begun_a_stop_text() {
    let llama = model("golden/llama");
    let request =
        |max_tokens: u64| json!({"id": 1, "prompt": "w5 w6", "greedy": true, "max_tokens": max_tokens});
    let (beginning, _) = whole(&ask(&llama, &[request(12)]), &json!(1));
    let mut held = request(50);
    held["stop"] = json!([beginning + "never"]);
    let mut running = Running::start(&llama, &["--throttle", "4/s"]);
    let mut patience = std::time::Duration::from_millis(500);
    // There is no signal that a token has arrived: a busy machine needs retries.
    let (text, tokens) = loop {
        running.say(&held);
        std::thread::sleep(patience);
        running.say(&json!({"cancel": 1}));
        let mut answers = vec![running.hear()];
        while answers.last().is_some_and(|answer| answer.get("done").is_none()) {
            answers.push(running.hear());
        }
        let (text, end) = whole(&answers, &json!(1));
        assert_eq!(end["done"]["finish_reason"], "canceled");
        match end["done"]["tokens"].as_u64().unwrap() {
            0 => patience *= 2,
            tokens => break (text, tokens),
        }
    };
    assert_eq!(text, whole(&ask(&llama, &[request(tokens)]), &json!(1)).0);
    assert!(!text.is_empty());
}

#[test]
fn a_chat_goes_on_as_if_it_were_asked_as_a_whole() {
    let llama = model("golden/llama");
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let mut said = vec![message("system", "w20"), message("user", "w5 w6")];
    let mut running = Running::start(&llama, &[]);
    for turn in ["w7", "w8 w5"] {
        let request = json!({"id": 1, "chat": said, "temperature": 0, "max_tokens": 6});
        running.say(&request);
        let mut text = String::new();
        let end = loop {
            let answer = running.hear();
            match answer["text"].as_str() {
                Some(piece) => text += piece,
                None => break answer,
            }
        };
        let alone = ask(&llama, &[request]);
        let (expected, expected_end) = whole(&alone, &json!(1));
        assert_eq!(
            (&text, &end["done"]["finish_reason"]),
            (&expected, &expected_end["done"]["finish_reason"])
        );
        assert_eq!(end["done"]["context_tokens"], expected_end["done"]["context_tokens"]);
        said.extend([message("assistant", &text), message("user", turn)]);
    }
    // A conversation that starts differently shares no prefix in the KV cache.
    let request = json!({"id": 1, "chat": [message("user", "w6 w5")], "temperature": 0, "max_tokens": 6});
    running.say(&request);
    let alone = ask(&llama, &[request]);
    for expected in &alone[..alone.len() - 1] {
        assert_eq!(running.hear(), *expected);
    }
}

#[test]
fn template_variables_come_with_the_request() {
    let template = "{% for tool in tools or [] %}{{ tool }} {% endfor %}{% if enable_thinking %}w7 {% endif %}\
                    {% for document in documents or [] %}{{ document }} {% endfor %}\
                    {{ messages[-1].content }}";
    let llama = super::chat::with_template("serve-variables", template);
    let llama = llama.to_str().unwrap();
    let chat = |more: Value| {
        let mut request = json!({"chat": [{"role": "user", "content": "w5"}], "max_tokens": 0});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let answers = ask(
        llama,
        &[
            chat(json!({})),
            chat(json!({"tools": ["w6", "w8"]})),
            chat(json!({"documents": ["w6"], "chat_template_kwargs": {"enable_thinking": true}})),
            chat(json!({})),
            chat(json!({"chat_template_kwargs": {"messages": []}})),
            chat(json!({"chat_template_kwargs": 5})),
        ],
    );
    let tokens: Vec<_> = answers.iter().map(|answer| answer["done"]["context_tokens"].as_u64()).collect();
    assert_eq!(tokens, [Some(1), Some(3), Some(3), Some(1), None, None]);
    assert!(
        answers[4]["error"]["location"].as_str().unwrap().ends_with("chat_template_kwargs"),
        "{answers:?}"
    );
}

/// The chat model downloaded by `cargo xtask model smollm2`.
#[test]
fn what_was_said_is_not_read_again() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.models/smollm2.gguf");
    if !path.is_file() {
        eprintln!("skipped: {} is not there; `cargo xtask model smollm2` brings it", path.display());
        return;
    }
    let text = "The siskin is a small bird that eats the seeds of alders and birches. ".repeat(40);
    let question = json!({"role": "user", "content": format!("{text}What does it eat?")});
    let mut said = vec![question];
    let mut running = Running::start(path.to_str().unwrap(), &[]);
    let mut seconds = Vec::new();
    for turn in ["And where?", "Why?"] {
        running.say(&json!({"id": 1, "chat": said, "temperature": 0, "max_tokens": 12}));
        let mut text = String::new();
        let end = loop {
            let answer = running.hear();
            match answer["text"].as_str() {
                Some(piece) => text += piece,
                None => break answer,
            }
        };
        seconds.push(end["done"]["prompt_seconds"].as_f64().unwrap());
        said.push(json!({"role": "assistant", "content": text}));
        said.push(json!({"role": "user", "content": turn}));
    }
    eprintln!("read in {seconds:?} seconds");
    assert!(seconds[1] < seconds[0] / 3.0, "{seconds:?}");
}

#[test]
fn who_does_not_listen_ends_it_quietly() {
    let mut running = Running::start(&model("golden/llama"), &[]);
    running.say(&json!({"stats": true}));
    running.hear();
    drop(running.output);
    for _ in 0..3 {
        // The process may have exited before the last of these.
        let _ = running.input.write_all(b"{\"stats\": true}\n");
    }
    let output = running.child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_missing_model_is_an_error_line() {
    let output = siskin(&["serve", "--stdio", "/no/such/model"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(values(&output)[0]["error"]["code"], 104);
}

/// The speech model downloaded by `cargo xtask model whisper`.
#[test]
fn sound_comes_in_the_line() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.models/whisper");
    if !path.is_dir() {
        eprintln!("skipped: {} is not there; `cargo xtask model whisper` brings it", path.display());
        return;
    }
    let packed = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("whisper.siskin");
    let convert = ["convert", path.to_str().unwrap(), "-o", packed.to_str().unwrap()];
    assert!(siskin(&convert).status().unwrap().success());
    let (path, wave) = (packed.to_str().unwrap(), data("speech/english.wav"));
    let mut expected = printed(&["transcribe", path, wave.to_str().unwrap(), "--timestamps"]).remove(0);
    let found =
        ask(path, &[json!({"transcribe": base64(&std::fs::read(&wave).unwrap()), "timestamps": true})]);
    expected.as_object_mut().unwrap().remove("file");
    assert_eq!(found[0]["done"]["results"], json!([expected]));
}

fn base64(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let held = part.iter().fold(0, |held, &byte| held << 8 | usize::from(byte)) << (8 * (3 - part.len()));
        (0..4).for_each(|at| {
            let known = at <= part.len();
            text.push(if known { char::from(digits[held >> (18 - 6 * at) & 63]) } else { '=' });
        });
    }
    text
}
