//! Checks the subjects of commits.

/// The maximum number of characters of a subject.
const MAX_SUBJECT: usize = 72;

/// Returns commits with unsuitable subjects. `log` has one commit per line: its hash, a space and its subject.
pub fn subjects_fit(log: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    for line in log.lines() {
        let (hash, subject) = line.split_once(' ').unwrap_or((line, ""));
        let length = subject.chars().count();
        if length > MAX_SUBJECT {
            breaches.push(format!("{hash}: {length} characters, at most {MAX_SUBJECT}: {subject}"));
        }
        if subject.ends_with('.') {
            breaches.push(format!("{hash}: ends with a period: {subject}"));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_punctuated_subjects_are_found() {
        let log = format!("a1 Add a rule\nb2 {}\nc3 Add a rule.\nd4 {}\n", "é".repeat(72), "x".repeat(73));
        let found = subjects_fit(&log);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("c3: ends with a period"), "{found:?}");
        assert!(found[1].starts_with("d4: 73 characters"), "{found:?}");
    }
}
