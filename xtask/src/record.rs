//! What a step printed: the few lines of it that say why it failed.

/// Lines that are shown of a long record, and characters of a line.
const LINES: usize = 150;
const CHARACTERS: usize = 240;
/// What a line has that tells of a failure, and how many lines from it on are shown.
const SIGNS: [(&str, usize); 9] = [
    ("error", 8),
    ("warning:", 6),
    ("panicked at", 8),
    ("FAILED", 2),
    ("failures:", 6),
    ("signal:", 2),
    ("==ERROR", 10),
    ("Killed", 2),
    ("timed out", 2),
];
/// Lines of the end that are always shown.
const END: usize = 30;

/// The lines from each sign of a failure on, and the end. The last ones stay where there are too many.
pub(crate) fn failures(record: &str) -> String {
    let lines: Vec<&str> = record.lines().collect();
    let mut kept = vec![false; lines.len()];
    for (place, line) in lines.iter().enumerate() {
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

/// What follows `sign` in the last line that begins with `start`.
pub(crate) fn last_after<'a>(record: &'a str, start: &str, sign: &str) -> Option<&'a str> {
    let line = record.lines().rev().find(|line| line.starts_with(start))?;
    line.split_once(sign).map(|(_, rest)| rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_in_the_middle_is_shown() {
        let mut record: Vec<String> = (0..1000).map(|number| format!("test t{number} ... ok")).collect();
        record[200] = format!("thread 't' panicked at src/a.rs:1:1: {}", "x".repeat(1000));
        record[201] = "left: 1".to_owned();
        let shown = failures(&record.join("\n"));
        assert!(shown.contains("panicked at src/a.rs") && shown.contains("left: 1"), "{shown}");
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
