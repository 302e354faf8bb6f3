//! Questions with several answers: a model chooses the one that it finds most likely per character.

use super::Pair;
use super::report::{GateCheck, Report};
use crate::input_path;
use serde::Deserialize;
use siskin::{Error, Model, Result, SessionOptions};
use std::path::Path;

/// A question, as lines of a file have it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    context: String,
    choices: Vec<String>,
    answer: usize,
}

/// Compares the accuracy of both models. A loss counts as far as it exceeds the 95% confidence interval of the difference.
pub(super) fn compare(pair: &Pair, path: &Path, bound: f64, report: &mut Report) -> Result<()> {
    let questions = read(path)?;
    let right = |model: &Model| {
        questions.iter().map(|question| is_right(model, question)).collect::<Result<Vec<_>>>()
    };
    let (before, after) = (right(&pair.baseline)?, right(&pair.candidate)?);
    let share = |right: &[bool]| right.iter().filter(|right| **right).count() as f64 / right.len() as f64;
    let (before_share, after_share) = (share(&before), share(&after));
    let loss = 100.0 * (before_share - after_share);
    let interval = 100.0 * interval(&before, &after);
    let name = format!("accuracy, loss in points beyond ±{interval:.2}");
    report.push(
        GateCheck::at_most(name, (loss - interval).max(0.0), bound)
            .comparing(100.0 * before_share, 100.0 * after_share),
    );
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Question>> {
    let location = path.display().to_string();
    let text = input_path::read_text(path)?;
    let question = |(index, line): (usize, &str)| {
        let place = format!("{location}: line {}", index + 1);
        let question: Question =
            serde_json::from_str(line).map_err(|error| Error::argument(place.clone(), error.to_string()))?;
        match question.answer < question.choices.len()
            && question.choices.iter().all(|choice| !choice.is_empty())
        {
            true => Ok(question),
            false => Err(Error::argument(
                place,
                "`answer` must be the index of one of the `choices`, which must not be empty",
            )),
        }
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let questions: Vec<Question> = lines.map(question).collect::<Result<_>>()?;
    match questions.is_empty() {
        true => Err(Error::argument(location, "expected at least one question")),
        false => Ok(questions),
    }
}

fn is_right(model: &Model, question: &Question) -> Result<bool> {
    let mut best = (f64::NEG_INFINITY, 0);
    for (index, choice) in question.choices.iter().enumerate() {
        let mut session = model.session(SessionOptions::default())?;
        session.score_text(&question.context, false)?;
        let score = session.score_text(choice, false)?.log_probability / choice.chars().count() as f64;
        if score > best.0 {
            best = (score, index);
        }
    }
    Ok(best.1 == question.answer)
}

/// Returns half of the 95% confidence interval of the difference of two shares of the same questions.
fn interval(before: &[bool], after: &[bool]) -> f64 {
    let count = before.len() as f64;
    let differences =
        before.iter().zip(after).map(|(before, after)| f64::from(i8::from(*before) - i8::from(*after)));
    let mean = differences.clone().sum::<f64>() / count;
    let variance =
        differences.map(|difference| (difference - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    1.96 * (variance / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_answers_have_no_interval() {
        assert_eq!(interval(&[true, false], &[true, false]), 0.0);
        // Differences 1, -1, 0, 0: variance 2/3.
        let half = interval(&[true, false, true, true], &[false, true, true, true]);
        assert!((half - 1.96 * (2.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
    }
}
