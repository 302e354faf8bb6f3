//! Output of a test step: extracts the lines that explain a failure.

/// Maximum lines shown of a long output, and maximum characters of a line.
const LINES: usize = 150;
const CHARACTERS: usize = 240;
/// Texts that indicate a failure, and the number of lines to show from each on.
const SIGNS: [(&str, usize); 10] = [
    ("error:", 8),
    ("error[", 8),
    ("warning:", 6),
    ("panicked at", 8),
    ("FAILED", 2),
    ("failures:", 25),
    ("signal:", 2),
    ("==ERROR", 10),
    ("Killed", 2),
    ("timed out", 2),
];
/// Number of lines at the end that are always shown.
const END: usize = 30;

/// Returns the lines after each failure indicator, and the end. If they are too many, keeps the last ones. The output
/// of passed tests, which may panic on purpose, does not count.
pub(crate) fn failures(record: &str) -> String {
    let lines: Vec<&str> = record.lines().collect();
    let mut kept = vec![false; lines.len()];
    let mut of_passed = false;
    for (place, line) in lines.iter().enumerate() {
        of_passed = match *line {
            "successes:" => true,
            "failures:" => false,
            _ => of_passed && !line.starts_with("test result: "),
        };
        if of_passed || line.ends_with("... ok") {
            continue;
        }
        let wanted = SIGNS.iter().filter(|(sign, _)| line.contains(sign)).map(|&(_, count)| count).max();
        for keep in kept.iter_mut().skip(place).take(wanted.unwrap_or(0)) {
            *keep = true;
        }
    }
    for keep in kept.iter_mut().rev().take(END) {
        *keep = true;
    }
    let surplus = kept.iter().filter(|&&keep| keep).count().saturating_sub(LINES);
    let chosen = lines.iter().zip(&kept).filter(|&(_, &keep)| keep).skip(surplus);
    let shown: Vec<String> = chosen.map(|(line, _)| line.chars().take(CHARACTERS).collect()).collect();
    format!("[{} of {} lines]\n{}", shown.len(), lines.len(), shown.join("\n"))
}

/// Returns the text after `sign` in the last line that begins with `start`.
pub(crate) fn last_after<'a>(record: &'a str, start: &str, sign: &str) -> Option<&'a str> {
    let line = record.lines().rev().find(|line| line.starts_with(start))?;
    line.split_once(sign).map(|(_, rest)| rest.trim())
}

/// Test results of an output.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tests {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Tests that passed because a requirement is missing.
    pub(crate) skipped: usize,
    /// Tests that ran only some of their cases.
    pub(crate) partly: usize,
    /// The distinct reasons.
    pub(crate) reasons: Vec<String>,
}

/// Prefixes of lines that say why a test was skipped, and which of its cases `cargo xtask test --all` adds.
pub(crate) const SKIPPED: &str = "skipped: ";
const LEFT_OUT: &str = "left out: ";
/// The message of skipped Swift tests, anywhere in a line.
const SKIPPED_IN_SWIFT: &str = "Test skipped: ";

impl Tests {
    /// Sums up the summary lines of test programs, and skipped tests. Rust tests must have been run with
    /// `--show-output`.
    pub(crate) fn read(record: &str) -> Self {
        let mut tests = Self::default();
        // Whether the output is that of a test, and whether that test is already counted as skipped.
        let (mut own, mut counted) = (false, false);
        // Skipped tests that their program counts as passed.
        let mut not_passed = 0;
        for line in record.lines() {
            let skipped =
                line.strip_prefix(SKIPPED).or(line.split_once(SKIPPED_IN_SWIFT).map(|(_, why)| why));
            if line.starts_with("---- ") {
                (own, counted) = (true, false);
            } else if let Some(counts) = line.strip_prefix("test result: ") {
                own = false;
                tests.add_counts(counts);
            } else if let Some(why) = skipped {
                tests.skipped += usize::from(!own || !counted);
                not_passed += usize::from(own && !counted);
                counted = true;
                tests.add_reason(why);
            } else if let Some(cases) = line.strip_prefix(LEFT_OUT) {
                tests.partly += 1;
                tests.add_reason(cases);
            }
        }
        tests.passed = tests.passed.saturating_sub(not_passed);
        tests
    }

    fn add_counts(&mut self, counts: &str) {
        for part in counts.split([';', '.']) {
            let Some((number, what)) = part.trim().split_once(' ') else { continue };
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                _ => {}
            }
        }
    }

    fn add_reason(&mut self, reason: &str) {
        if !self.reasons.iter().any(|known| known == reason) {
            self.reasons.push(reason.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_added_up() {
        let said = "running 3 tests\ntest a ... ok\n---- a stdout ----\nskipped: no model\nskipped: no model\n\n\
            ---- b stdout ----\nleft out: 3 of 4 models\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.50s\n\
            a.swift:3: error: T.test : Test skipped: no sound\n\
            test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s\n";
        let reasons = ["no model", "3 of 4 models", "no sound"].map(str::to_owned).to_vec();
        let want = Tests { passed: 3, failed: 3, skipped: 2, partly: 1, reasons };
        assert_eq!(Tests::read(said), want, "what was skipped did not pass");
        assert_eq!(Tests::read("error: could not compile"), Tests::default());
    }

    #[test]
    fn a_failure_in_the_middle_is_shown() {
        let mut record: Vec<String> = (0..1000).map(|number| format!("test t{number} ... ok")).collect();
        record[200] = format!("thread 't' panicked at src/a.rs:1:1: {}", "x".repeat(1000));
        record[201] = "left: 1".to_owned();
        record[600] = "test errors: a_rare_one ... ok".to_owned();
        record[700..704].clone_from_slice(
            &["successes:", "---- b stdout ----", "thread 'b' panicked at src/b.rs", "failures:"]
                .map(str::to_owned),
        );
        let shown = failures(&record.join("\n"));
        assert!(shown.contains("panicked at src/a.rs") && shown.contains("left: 1"), "{shown}");
        assert!(!shown.contains("a_rare_one") && !shown.contains("src/b.rs"), "{shown}");
        assert!(shown.contains("t999 ") && !shown.contains("t300 "), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= CHARACTERS));
    }

    #[test]
    fn what_is_too_much_is_left_out_from_the_front() {
        let record: Vec<String> = (0..1000).map(|number| format!("error: e{number}")).collect();
        let shown = failures(&record.join("\n"));
        assert_eq!(shown.lines().count(), LINES + 1);
        assert!(shown.contains("e999") && !shown.contains("e100\n"));
    }

    #[test]
    fn a_reason_is_found() {
        let record = "step  seconds  result\nios  1.0  skipped: no Swift; install it\ntotal  1.0\n";
        assert_eq!(last_after(record, "ios", "skipped: "), Some("no Swift; install it"));
        assert_eq!(
            last_after("a test was skipped: x\nios  1.0  passed\n0 skipped\n", "ios", "skipped: "),
            None
        );
    }
}
