use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/templates/");

/// Outputs of Jinja 2; see `tests/golden-scripts/make_template_goldens.py`.
#[derive(Deserialize)]
struct Goldens {
    now: i64,
    conversations: BTreeMap<String, TemplateData>,
    options: BTreeMap<String, BTreeMap<String, TemplateData>>,
    context: BTreeMap<String, TemplateData>,
    cases: Vec<Case>,
    snippets: Vec<Snippet>,
}

#[derive(Deserialize)]
struct Case {
    file: String,
    messages: String,
    options: String,
    expected: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Snippet {
    source: String,
    expected: Option<String>,
    error: Option<String>,
}

fn goldens() -> Goldens {
    serde_json::from_str(&std::fs::read_to_string(format!("{FOLDER}cases.json")).unwrap()).unwrap()
}

fn render(source: &str, variables: &[(&str, TemplateData)]) -> Result<String> {
    let extra = variables.iter().map(|(name, data)| ((*name).to_owned(), data.clone())).collect();
    let options = RenderOptions { extra, add_generation_prompt: false, ..RenderOptions::default() };
    ChatTemplate::new(source)?.render(&TemplateData::from(&[] as &[Message]), &options)
}

fn compare(name: &str, found: &Result<String>, expected: &Option<String>, error: &Option<String>) -> bool {
    match (found, expected) {
        (Ok(found), Some(expected)) if found == expected => true,
        (Err(found), None) => {
            assert_eq!(found.kind(), ErrorKind::Template, "{name}");
            true
        }
        (found, expected) => {
            println!("{name}\n   found {found:?}\nexpected {expected:?} {error:?}\n");
            false
        }
    }
}

#[test]
fn templates_of_models_render_as_in_jinja() {
    let goldens = goldens();
    let mut wrong = 0;
    for case in &goldens.cases {
        let template = ChatTemplate::new(&std::fs::read_to_string(format!("{FOLDER}{}", case.file)).unwrap());
        let mut extra = goldens.options[&case.options].clone();
        let dated = extra.remove("with_date").is_none();
        let options = RenderOptions {
            bos_token: Some("<bos>".to_owned()),
            eos_token: Some("</s>".to_owned()),
            add_generation_prompt: false,
            extra: extra.into_iter().collect(),
            now: dated.then(|| Date::from_unix(goldens.now)),
            ..RenderOptions::default()
        };
        let found =
            template.and_then(|template| template.render(&goldens.conversations[&case.messages], &options));
        let name = format!("{} with {} and {}", case.file, case.messages, case.options);
        wrong += usize::from(!compare(&name, &found, &case.expected, &case.error));
        if let (Err(found), Some(error)) = (&found, &case.error) {
            let rejection = found.message().strip_prefix("rejects the messages: ");
            assert!(
                rejection.is_none_or(|rejection| rejection.starts_with(error.as_str())),
                "{found:?} is not {error}"
            );
        }
    }
    assert!(goldens.cases.len() > 300);
    assert_eq!(wrong, 0, "of {}", goldens.cases.len());
}

/// The conversations of the goldens as JSON.
#[derive(Deserialize)]
struct Conversations {
    conversations: HashMap<String, Box<serde_json::value::RawValue>>,
}

#[test]
fn messages_render_as_their_json() {
    let goldens = goldens();
    let text = std::fs::read_to_string(format!("{FOLDER}cases.json")).unwrap();
    let json: Conversations = serde_json::from_str(&text).unwrap();
    let (mut compared, mut with_calls) = (0, 0);
    for case in goldens.cases.iter().filter(|case| case.options == "plain") {
        let Ok(messages) = Message::list_from_json("messages", json.conversations[&case.messages].get())
        else {
            assert_eq!(case.messages, "parts", "a conversation with an image");
            continue;
        };
        // A message without content has an empty one.
        let has_calls = messages.iter().any(|message| !message.tool_calls.is_empty());
        if case.messages == "tool" {
            assert!(has_calls);
            continue;
        }
        let source = std::fs::read_to_string(format!("{FOLDER}{}", case.file)).unwrap();
        let options = RenderOptions {
            bos_token: Some("<bos>".to_owned()),
            eos_token: Some("</s>".to_owned()),
            add_generation_prompt: false,
            now: Some(Date::from_unix(goldens.now)),
            ..RenderOptions::default()
        };
        let data = TemplateData::messages(&messages, &MessageStyle::default());
        let found = ChatTemplate::new(&source).unwrap().render(&data, &options);
        assert!(compare(&format!("{} {}", case.file, case.messages), &found, &case.expected, &case.error));
        let again =
            messages.iter().map(|message| message.to_json().to_string()).collect::<Vec<_>>().join(",");
        // Empty content beside calls is null.
        let plain = |mut message: Message| {
            message.content.retain(|part| *part != ContentPart::Text(String::new()));
            message
        };
        let again = Message::list_from_json("messages", &format!("[{again}]")).unwrap();
        assert!(again.into_iter().map(plain).eq(messages.into_iter().map(plain)), "{}", case.messages);
        compared += 1;
        with_calls += usize::from(has_calls && found.is_ok());
    }
    assert!(compared > 80 && with_calls > 8, "{compared}, {with_calls}");
}

#[test]
fn snippets_render_as_in_jinja() {
    let goldens = goldens();
    let options = RenderOptions {
        add_generation_prompt: false,
        extra: goldens.context.clone().into_iter().collect(),
        now: Some(Date::from_unix(goldens.now)),
        ..RenderOptions::default()
    };
    let mut wrong = 0;
    for snippet in &goldens.snippets {
        let template = ChatTemplate::new(&snippet.source);
        let found = template.and_then(|template| template.render(&goldens.context["messages"], &options));
        wrong += usize::from(!compare(&snippet.source, &found, &snippet.expected, &snippet.error));
    }
    assert!(goldens.snippets.len() > 90);
    assert_eq!(wrong, 0, "of {}", goldens.snippets.len());
}

#[test]
fn failures_name_the_line() {
    let place = |source: &str| {
        let error = render(source, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Template, "{source}");
        (error.location().to_owned(), error.message().to_owned())
    };
    assert_eq!(
        place("a\n\n{{ nope.x }}"),
        ("chat template, line 3".into(), "takes 'x' of 'nope', which is not defined".into())
    );
    assert_eq!(
        place("{% if 1 %}\n{{ raise_exception('not so') }}{% endif %}").1,
        "rejects the messages: not so"
    );
    assert_eq!(
        place("a\r\nb\n{% foo %}"),
        ("chat template, line 3".into(), "uses '{% foo %}', which is not supported".into())
    );
    assert_eq!(place("{#\n\n#}{{ 'a\nb' }}\n{{ 1 | nope }}").0, "chat template, line 5");
    assert_eq!(place("{% include 'x' %}").1, "uses '{% include %}', which is not supported");
    assert!(place("{% macro f() %}{% break %}{% endmacro %}").1.contains("outside of a loop"));
}

/// Hostile templates that try to crash, to loop forever or to exhaust memory. Each must end soon with an error or a
/// result.
#[test]
fn hostile_templates_end() {
    let many = |text: &str, count: usize| text.repeat(count);
    let nested = |open: &str, middle: &str, close: &str| {
        format!("{}{middle}{}", many(open, 8_000), many(close, 8_000))
    };
    let inside = |expression: String| format!("{{{{ {expression} }}}}");
    let looped = |body: &str| {
        format!(
            "{{% set ns = namespace(x='ab', y=[1]) %}}{{% for i in range(100000) %}}{body}{{% endfor %}}{{{{ ns.x }}}}"
        )
    };
    let sources = [
        // Deep nesting of the source.
        inside(nested("(", "1", ")")),
        inside(nested("[", "1", "]")),
        inside(nested("{1:", "1", "}")),
        inside(nested("x[", "1", "]")),
        inside(nested("f(", "1", ")")),
        inside(many("not ", 50_000) + "1"),
        inside(many("- ", 50_000) + "1"),
        inside(many("1 if 1 else ", 30_000) + "1"),
        inside(format!("1{}", many(" if 1", 50_000))),
        inside(format!("1{}", many(" + 1", 60_000))),
        inside(format!("1{}", many(" ~ 1", 60_000))),
        inside(format!("1{}", many(" and 1", 60_000))),
        inside(format!("1{}", many(" < 2", 60_000))),
        inside(format!("1{}", many(" ** 1", 60_000))),
        inside(format!("x{}", many(".a", 60_000))),
        inside(format!("1{}", many("|abs", 60_000))),
        inside(format!("1{}", many(" is odd", 60_000))),
        nested("{% if 1 %}", "x", "{% endif %}"),
        nested("{% for x in y %}", "x", "{% endfor %}"),
        nested("{% macro f() %}", "x", "{% endmacro %}"),
        nested("{% set x %}", "x", "{% endset %}"),
        format!("{{% if 1 %}}{}{{% endif %}}", many("{% elif 1 %}", 25_000)),
        many("{{", 100_000),
        many("{%", 100_000),
        many("{#", 100_000),
        many("{% raw %}", 50_000),
        many("{% raw %}{%endraw", 50_000),
        format!("{{{{ '{}", many("\\", 400_001)),
        many("{% set x = [x] %}", 15_000) + "{{ x }}",
        many("x", MAX_SOURCE_BYTES + 1),
        format!("{{% macro f() %}}{{{{ {}f(){} }}}}{{% endmacro %}}{{{{ f() }}}}", many("(1 if 0 else ", 30), many(")", 30)),
        format!("{{% macro f() %}}{{{{ {}f(){} }}}}{{% endmacro %}}{{{{ f() }}}}", many("[1 + -1 * ", 60), many("]", 60)),
        format!("{{% macro f() %}}{}{{{{ f() }}}}{}{{% endmacro %}}{{{{ f() }}}}", many("{% for x in [1] %}", 60), many("{% endfor %}", 60)),
        format!("{{% macro f() %}}{}{{{{ f() }}}}{}{{% endmacro %}}{{{{ f() }}}}", many("{% set x | upper %}", 60), many("{% endset %}", 60)),
        format!("{{% macro f() %}}{}f(){}{{% endmacro %}}{{{{ f() }}}}", many("{{ [[1] | map('default', ", 40), many(")]}}", 40)),
        // Large values.
        looped("{% set ns.x = ns.x ~ ns.x %}"),
        looped("{% set ns.x = ns.x + ns.x %}"),
        looped("{% set ns.x = ns.x * 2 %}"),
        looped("{% set ns.x = ns.x | replace('a', 'aaaaaaaaaaaaaaaaaaaa') %}"),
        looped("{% set ns.x = ns.x.replace('', ns.x) %}"),
        looped("{% set ns.x = ns.x.join(ns.x | list) %}"),
        looped("{% set ns.x = ns.x | tojson %}"),
        looped("{% set ns.x = ns.x | e | upper | indent(9) %}"),
        looped("{% set ns.x = ns.x | list | string %}"),
        looped("{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
        looped("{% set ns.y = ns.y + ns.y %}"),
        looped("{% set ns.y = ns.y * 3 %}"),
        looped("{% set ns.y = [ns.y] %}"),
        looped("{% set ns.y = {'a': ns.y} %}"),
        looped("{% set ns.y = (ns.y,) %}"),
        looped("{% set ns.y = namespace(a=ns.y) %}"),
        looped("{% set ns.y = ns.y | map('list') | reverse %}"),
        looped("{% if i < 60 %}{% set ns.y = [ns.y, ns.y] %}{% endif %}") + "{{ ns.y }}",
        looped("{% if i < 60 %}{% set ns.y = [ns.y, ns.y] %}{% endif %}") + "{{ ns.y | tojson }}",
        looped("{% if i < 60 %}{% set ns.y = [ns.y, ns.y] %}{% set ns.z = [ns.z, ns.z] %}{% endif %}") + "{{ ns.y == ns.z }}",
        looped("{{ ns }}{{ range(100000) }}"),
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}{{ ns.a.a.a == ns }}{{ [ns] == [ns.a] }}".to_owned(),
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns | tojson }}".to_owned(),
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}".to_owned(),
        "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}".to_owned(),
        "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}".to_owned(),
        "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}{{ f() }}{% call f() %}{% endcall %}{% endcall %}".to_owned(),
        inside("'x' * 1000000000000".to_owned()),
        inside("[1] * 1000000000000".to_owned()),
        inside("('' * 9223372036854775807) ~ ([] * 9223372036854775807)".to_owned()),
        inside("range(1000000000)".to_owned()),
        inside("range(-9223372036854775807, 9223372036854775807, 9223372036854775807)".to_owned()),
        inside("range(9223372036854775807, -9223372036854775807, -9223372036854775807)".to_owned()),
        inside("'a' | center(100000000000)".to_owned()),
        inside("'a'.zfill(100000000000) ~ 'a'.ljust(9223372036854775807)".to_owned()),
        inside("'a\nb' | indent(100000000000)".to_owned()),
        inside("'%1000000000d' % 1".to_owned()),
        inside("'%.999999999f' % 1".to_owned()),
        inside("[[1]] | tojson(indent=100000000000)".to_owned()),
        inside("[1] | batch(100000000000, 0)".to_owned()),
        inside("9223372036854775807 + 1".to_owned()),
        inside("-9223372036854775807 - 2".to_owned()),
        inside("(-9223372036854775807 - 1) // -1".to_owned()),
        inside("(-9223372036854775807 - 1) % -1".to_owned()),
        inside("-(-9223372036854775807 - 1)".to_owned()),
        inside("(-9223372036854775807 - 1) | abs".to_owned()),
        inside("2 ** 9223372036854775807".to_owned()),
        inside("99999999999999999999".to_owned()),
        inside("'abc'[9223372036854775807] ~ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807]".to_owned()),
        inside("[1, 2][-9223372036854775807 - 1] ~ [1, 2][:: -9223372036854775807 - 1]".to_owned()),
        inside("1.5 | round(9223372036854775807)".to_owned()),
        inside("1e308 * 10 | int".to_owned()),
        inside("'\\ud800'".to_owned()),
        inside("'é' | replace('é', 'ß') | title | upper".to_owned()),
        inside("[1, 'a', none] | sort".to_owned()),
        inside("(range(100) | list + [1e308 * 10 - 1e308 * 10] + range(100) | list) | sort".to_owned()),
        inside(format!("[[1e308 * 10 - 1e308 * 10, 3, 1, 2]{}] | map('sort') | list", many(", [2, 1, 3]", 40))),
        inside(format!("'a' | map('map'{})", many(", 'map'", 60_000))),
        inside(format!("'a' | map('select'{})", many(", 'in'", 60_000))),
        inside("[] | max ~ [] | min".to_owned()),
    ];
    for source in sources {
        let name: String = source.chars().take(90).collect();
        let start = Instant::now();
        // A small stack: excessive depth must be rejected before the stack is exhausted.
        let run = move || render(&source, &[]).map(|text| text.len());
        let result = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(20), "{name}");
        if let Err(error) = &result {
            assert_eq!(error.kind(), ErrorKind::Template, "{name}");
        }
        println!("{:>8.3?} {name:?} {result:?}", start.elapsed());
    }
}

/// Random sequences of template fragments never panic.
#[test]
fn random_templates_never_panic() {
    let pieces = [
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "-",
        "+",
        "~",
        "*",
        "**",
        "/",
        "//",
        "%",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ":",
        ",",
        ".",
        "|",
        "=",
        "==",
        "<",
        " if ",
        " else ",
        " for ",
        " in ",
        " is ",
        " not ",
        " and ",
        " or ",
        "endif",
        "endfor",
        "elif ",
        "set ",
        "x",
        "y",
        "messages",
        "loop",
        "namespace",
        "range",
        "0",
        "1",
        "-1",
        "9",
        "1.5",
        "'a'",
        "\"é\"",
        "'",
        "\n",
        " ",
        "raw",
        "endraw",
        "macro f",
        "endmacro",
        "call ",
        "endcall",
        "tojson",
        "trim",
        "split",
        "items",
        "none",
        "true",
        "upper",
        "join",
        "sort",
        "length",
        "defined",
        "é",
        "😀",
        "{% for x in messages %}",
        "{% endfor %}",
        "{% if x %}",
        "{% endif %}",
        "{{ x }}",
        "{{ x['a'] }}",
        "{{ '%s' % x }}",
        "break",
        "continue",
        "\\",
    ];
    let messages =
        TemplateData::from_json(r#"[{"a": "é😀", "items": [1, 2.5, null, true]}, {"x": {"y": "z"}}]"#)
            .unwrap();
    let mut state = 1_u64;
    let mut roll = |sides: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % sides
    };
    let mut rendered = 0;
    for round in 0..60_000 {
        let mut source = if round % 2 == 0 { "{{ ".to_owned() } else { String::new() };
        (0..roll(12)).for_each(|_| source.push_str(pieces[roll(pieces.len())]));
        source.push_str(if round % 2 == 0 { " }}" } else { "" });
        if let Ok(template) = ChatTemplate::new(&source) {
            rendered += usize::from(template.render(&messages, &RenderOptions::default()).is_ok());
        }
    }
    assert!(rendered > 1_000, "{rendered}");
}

#[test]
fn data_keeps_order_and_bounds_depth() {
    let data =
        TemplateData::from_json(r#"{"z": 1, "a": [true, null, 1.5, 18446744073709551615], "z": 2}"#).unwrap();
    let text = render("{{ x | tojson }}", &[("x", data)]).unwrap();
    assert_eq!(text, r#"{"z": 2, "a": [true, null, 1.5, 1.8446744073709552e+19]}"#);
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert_eq!(TemplateData::from_json(&deep).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(TemplateData::from_json("{").unwrap_err().kind(), ErrorKind::Argument);
    let value = serde_json::json!({"b": [1, {"c": "d"}]});
    let text = render("{{ x }}", &[("x", TemplateData::from_value(&value).unwrap())]).unwrap();
    assert_eq!(text, "{'b': [1, {'c': 'd'}]}");
}

#[test]
fn dates_of_all_kinds() {
    // Timestamps and expected outputs of Python's datetime.
    let cases = [
        (0, "1970-01-01 Thu 001"),
        (951_782_400, "2000-02-29 Tue 060"),
        (4_107_542_399, "2100-02-28 Sun 059"),
        (4_107_542_400, "2100-03-01 Mon 060"),
        (1_735_603_200, "2024-12-31 Tue 366"),
        (-1, "1969-12-31 Wed 365"),
        (-62_135_596_800, "1-01-01 Mon 001"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(Date::from_unix(seconds).format("%Y-%m-%d %a %j"), expected);
    }
    let _ = (Date::from_unix(i64::MAX).format("%c"), Date::from_unix(i64::MIN).format("%c"));
}

#[test]
fn templates_cross_threads() {
    fn needs<T: Send + Sync + Clone>(_: &T) {}
    needs(&ChatTemplate::new("x").unwrap());
    needs(&RenderOptions::default());
}

/// Spans of untrusted text count as memory, too: a template that creates many of them fails.
#[test]
fn many_spans_are_counted() {
    let sources = [
        "{{ ('x' ~ m) * 100000000 }}",
        "{{ (m * 1000).replace('ab', 'ab-' * 100) | replace('-', m) | replace('a', '-a-') * 1000 }}",
        "{{ ((m * 1000) | list) | join(('x' ~ m) * 10) | list | join('y') * 100 }}",
        "{% set ns = namespace(t='') %}{% for i in range(100000) %}{% set ns.t = ns.t ~ 'x' ~ m %}{% endfor %}",
        "{{ '%s' % (('x' ~ m) * 10000) | tojson | tojson | tojson }}",
        "{{ m.rjust(1000000000, 'x') ~ m.center(1000000, m[:1]) }}",
    ];
    for source in sources {
        let start = Instant::now();
        let _ = render(source, &[("m", "ab\"ab".into())]);
        assert!(start.elapsed() < Duration::from_secs(20), "{source}");
    }
}

#[test]
fn variables_of_a_template_are_known_by_name() {
    let template = ChatTemplate::new("{% if enable_thinking %}{{ messages[0].content }}{% endif %}").unwrap();
    assert!(template.uses("enable_thinking") && template.uses("messages"));
    assert!(!template.uses("thinking") && !template.uses("tools"));
}
