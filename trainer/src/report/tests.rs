//! Reports of synthetic logs.

use super::*;

/// A folder with a log of some steps and a validation after each tenth.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("siskin-report-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, lines: &[Value]) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn step(step: u64) -> Value {
    json!({"step": step, "loss": 5.0 / step as f64, "grad_norm": 1.0, "learning_rate": 1e-3, "tokens": 256, "seconds": 0.5,
        "flops": 2e9})
}

fn validation_line(step: u64) -> Value {
    json!({"step": step, "validation_loss": 6.0 / step as f64, "validation_accuracy": 0.5})
}

/// Checks that tags are balanced, attributes are quoted, and no special character is unescaped.
fn well_formed(html: &str) {
    let body = html.strip_prefix("<!DOCTYPE html>\n").unwrap();
    let mut open: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "a bare >: {}", &rest[..at]);
        for (place, _) in rest[..at].match_indices('&') {
            let end = rest[place..at].find(';').unwrap_or_else(|| panic!("a bare &: {}", &rest[place..at]));
            assert!(["&lt;", "&gt;", "&amp;", "&quot;", "&#39;"].contains(&&rest[place..=place + end]));
        }
        let end = at + rest[at..].find('>').unwrap();
        let tag = &rest[at + 1..end];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed in another order");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

/// Returns the points of the curve of this name.
fn points(html: &str, name: &str) -> usize {
    let (before, _) = html.split_once(&format!("\"><title>{name}</title></polyline>")).unwrap();
    before.rsplit("points=\"").next().unwrap().split(' ').count()
}

#[test]
fn curves_have_one_point_per_log_line() {
    let folder = Folder::new("curves");
    let log: Vec<Value> =
        (1..=30).flat_map(|n| [Some(step(n)), (n % 10 == 0).then(|| validation_line(n))]).flatten().collect();
    folder.write(LOG, &log);
    let parts = MemoryByPart { parameters: 1 << 20, ..MemoryByPart::default() };
    describe(&folder.0, "steps = 30 # <config>", &parts, 1e9, 30).unwrap();
    let numbers =
        json!({"mean": 0.5, "rms": 1.5, "max_abs": 3.0, "zero_fraction": 0.0, "non_finite_fraction": 0.25});
    let own = |step: u64| json!({"step": step, "outputs": {"000.Embed": numbers}, "gradients": {"a.weight": numbers}});
    folder.write(STATISTICS, &[own(10), own(20)]);
    let path = make(&folder.0).unwrap();
    let html = std::fs::read_to_string(path).unwrap();
    well_formed(&html);
    for (name, count) in
        [("training", 30), ("validation", 3), ("learning rate", 30), ("gradient norm", 30), ("MFU", 30)]
    {
        assert_eq!(points(&html, name), count, "{name}");
    }
    for part in [
        "Step 30 of 30",
        "best validation loss 0.2 after step 30",
        "steps = 30 # &lt;config&gt;",
        "<td>parameters</td><td>1.0</td>",
        "Tensor statistics of step 20",
        "<tr class=\"bad\"><td>output 000.Embed</td>",
        "gradient a.weight",
        " 512</span>",
    ] {
        assert!(html.contains(part), "{part} in {html}");
    }
    assert!(!html.contains("<script") && !html.contains("http:") && !html.contains("https:"));
}

#[test]
fn generated_text_is_escaped() {
    let folder = Folder::new("hostile");
    let hostile = "</pre><script>alert(1)</script>\" onload='x' &amp; \u{0} \u{202e}<!-- \u{1b}[31m ]]>";
    folder.write(LOG, &[step(1)]);
    describe(&folder.0, hostile, &MemoryByPart::default(), 1e9, 1).unwrap();
    let sample = json!({"prompt": hostile, "text": hostile});
    folder.write(SAMPLES, &[json!({"step": 1, "samples": [sample]})]);
    folder.write(STATISTICS, &[json!({"step": 1, "outputs": {hostile: {"mean": hostile}}, "gradients": {}})]);
    let report = RunReport::read(&folder.0).unwrap();
    let html = report.html(hostile);
    well_formed(&html);
    assert!(!html.contains("<script") && !html.contains("<!--") && !html.contains("onload='"));
    assert!(!html.contains(['\u{0}', '\u{1b}', '\u{202e}']));
    assert_eq!(html.matches("&lt;script&gt;alert(1)").count(), 6, "title twice, prompt, text, name, config");
}

#[test]
fn steps_discarded_by_a_resume_are_excluded() {
    let folder = Folder::new("resumed");
    let mut log: Vec<Value> = (1..=12).map(step).collect();
    log.extend([validation_line(10), validation_line(12)]);
    log.extend((9..=11).map(step));
    folder.write(LOG, &log);
    // The last line of a killed run.
    let mut text = std::fs::read_to_string(folder.0.join(LOG)).unwrap();
    text.push_str("{\"step\": 12, \"lo");
    std::fs::write(folder.0.join(LOG), text).unwrap();
    let report = RunReport::read(&folder.0).unwrap();
    let steps: Vec<f64> = report.training.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, (1..=11).map(f64::from).collect::<Vec<_>>());
    assert!(report.validation.is_empty(), "{:?}", report.validation);
    well_formed(&report.html("resumed"));
}

#[test]
fn folders_without_a_run_are_rejected() {
    let folder = Folder::new("empty");
    let error = make(&folder.0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert!(error.message().contains("name the folder of a run"), "{error}");
    folder.write(LOG, &[]);
    let error = make(&folder.0).unwrap_err();
    assert!(error.message().contains("not the folder of a run"), "{error}");
    std::fs::write(folder.0.join(RUN), b"{}").unwrap();
    let html = std::fs::read_to_string(make(&folder.0).unwrap()).unwrap();
    well_formed(&html);
    assert!(html.contains("No steps yet"));
}
