//! Joins the candidates of the parts of a long source to whole texts.

use super::GeneratedText;
use crate::session::FinishReason;

/// Joins the candidates of each part to the `best` texts, best first. Beam search results are joined to the
/// combinations with the highest mean score; sampled ones are joined draw by draw, as each draw is a text of its own.
pub(super) fn join(parts: Vec<Vec<GeneratedText>>, searched: bool, best: usize) -> Vec<GeneratedText> {
    let count = parts.len();
    let mut parts = parts.into_iter();
    let mut all = parts.next().unwrap_or_default();
    for found in parts {
        all = match searched {
            true => combine(&all, &found, best),
            false => all.iter().zip(&found).map(|(before, after)| behind(before, after)).collect(),
        };
    }
    all.iter_mut().for_each(|candidate| candidate.score /= count as f64);
    // A stable sort: of equal scores the first stays first.
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    all
}

/// Returns the combinations with the highest sums.
fn combine(before: &[GeneratedText], after: &[GeneratedText], best: usize) -> Vec<GeneratedText> {
    let pairs = before.iter().flat_map(|before| after.iter().map(move |after| (before, after)));
    let mut pairs: Vec<_> = pairs.collect();
    let sum = |(before, after): &(&GeneratedText, &GeneratedText)| before.score + after.score;
    pairs.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
    pairs.iter().take(best).map(|(before, after)| behind(before, after)).collect()
}

/// Concatenates two texts and adds their scores.
fn behind(before: &GeneratedText, after: &GeneratedText) -> GeneratedText {
    GeneratedText {
        text: format!("{} {}", before.text, after.text).trim().to_owned(),
        tokens: [before.tokens.as_slice(), &after.tokens].concat(),
        score: before.score + after.score,
        finish_reason: if before.finish_reason == FinishReason::Eos {
            after.finish_reason
        } else {
            before.finish_reason
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(scores: &[(&str, f64)]) -> Vec<GeneratedText> {
        let one = |&(text, score): &(&str, f64)| GeneratedText {
            text: text.to_owned(),
            tokens: vec![text.len() as u32],
            score,
            finish_reason: if text == "B" { FinishReason::Length } else { FinishReason::Eos },
        };
        scores.iter().map(one).collect()
    }

    fn joined(searched: bool, best: usize) -> Vec<(String, f64)> {
        let parts = vec![part(&[("A", -1.0), ("B", -5.0)]), part(&[("c", -2.0), ("d", -2.5), ("e", -3.0)])];
        join(parts, searched, best).into_iter().map(|one| (one.text, one.score)).collect()
    }

    #[test]
    fn searched_parts_become_the_likeliest_combinations() {
        let want = [("A c", -1.5), ("A d", -1.75), ("A e", -2.0), ("B c", -3.5)];
        assert_eq!(joined(true, 4), want.map(|(text, score)| (text.to_owned(), score)));
    }

    #[test]
    fn drawn_parts_become_a_text_for_each_draw() {
        let want = [("A c", -1.5), ("B d", -3.75)];
        assert_eq!(joined(false, 2), want.map(|(text, score)| (text.to_owned(), score)));
        let joined = join(vec![part(&[("B", -1.0)]), part(&[("c", -1.0)])], false, 1);
        assert_eq!(joined[0].finish_reason, FinishReason::Length);
    }
}
