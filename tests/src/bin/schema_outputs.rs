//! Generates JSON for schemas with a model's tokenizer and without the model: tokens are drawn from the masks.
//!
//! `schema_outputs MODEL [ROUNDS] < SCHEMAS` reads a schema per line, and prints a JSON object per line: `error` and
//! `kind` for a schema that was refused; else `texts`, one for each round, and for each text that is cut off `null`. The
//! times of compilations and masks are printed at the end, to standard error.

use serde_json::json;
use siskin::constraint::{StructuredOutput, TokenMask};
use siskin::{Model, Result};
use siskin_convert::{OpenOptions, open_any};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The maximum length of a text in tokens.
const MAX_TOKENS: usize = 600;

struct Outputs {
    model: Model,
    /// The tokens that end a text, and those that close something.
    ends: Vec<u32>,
    closing: Vec<u32>,
    random: u64,
    compile: Vec<Duration>,
    masks: Vec<Duration>,
    tokens: usize,
    forced: usize,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_default();
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let outcome = open_any(std::path::Path::new(&path), &OpenOptions::default())
        .and_then(|file| Model::from_file(file, &siskin::ModelOptions::default()))
        .and_then(|model| Outputs::new(model)?.run(rounds));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl Outputs {
    fn new(model: Model) -> Result<Self> {
        let mut closing = Vec::new();
        for id in 0..model.config().vocabulary as u32 {
            // Some models have more rows than tokens.
            let piece = model.tokenizer()?.piece(id, false);
            if piece.is_ok_and(|piece| matches!(&*piece, b"\"" | b"}" | b"]" | b"\"}" | b"\"]" | b"0" | b","))
            {
                closing.push(id);
            }
        }
        let (ends, compile, masks) = (model.end_ids().to_vec(), Vec::new(), Vec::new());
        Ok(Self { model, ends, closing, random: 1, compile, masks, tokens: 0, forced: 0 })
    }

    fn run(&mut self, rounds: usize) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|error| siskin::Error::io("standard input", &error))?;
            let output = StructuredOutput::JsonSchema(line);
            let start = Instant::now();
            let compiled = self.model.constraint(&output).map(drop);
            self.compile.push(start.elapsed());
            let texts = compiled.and_then(|()| {
                (0..rounds).map(|round| self.text(&output, round)).collect::<Result<Vec<_>>>()
            });
            let object = match texts {
                Ok(texts) => json!({"texts": texts}),
                Err(error) => json!({"error": error.to_string(), "kind": error.kind().code()}),
            };
            writeln!(out, "{object}").map_err(|error| siskin::Error::io("standard output", &error))?;
        }
        eprintln!("compile: {}", summary(&mut self.compile));
        eprintln!("masks: {}", summary(&mut self.masks));
        eprintln!("{} of {} tokens were forced", self.forced, self.tokens);
        Ok(())
    }

    fn next(&mut self, below: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % below.max(1)
    }

    /// Returns a text, or `None` if it does not end.
    fn text(&mut self, output: &StructuredOutput, round: usize) -> Result<Option<String>> {
        let mut constraint = self.model.constraint(output)?;
        let vocabulary = self.model.config().vocabulary;
        let (mut bytes, mut forced, mut mask) = (Vec::new(), Vec::new(), TokenMask::new(vocabulary));
        for step in 0..MAX_TOKENS {
            if constraint.is_complete()? {
                return Ok(String::from_utf8(bytes).ok());
            }
            forced.clear();
            constraint.forced(&mut forced)?;
            self.forced += forced.len();
            self.tokens += forced.len().max(1);
            if forced.is_empty() {
                mask.clear();
                let start = Instant::now();
                constraint.mask(&mut mask)?;
                self.masks.push(start.elapsed());
                let Some(token) = self.choose(&mask, step + 100 * round) else {
                    return Ok(String::from_utf8(bytes).ok());
                };
                forced.push(token);
            }
            for &token in &forced {
                constraint.accept(token)?;
                bytes.extend_from_slice(&self.model.tokenizer()?.piece(token, false)?);
            }
        }
        Ok(None)
    }

    /// Chooses a token: the end if it is allowed, and else any; more and more often one that closes something.
    fn choose(&mut self, mask: &TokenMask, step: usize) -> Option<u32> {
        if self.ends.iter().any(|&id| mask.allows(id)) && self.random >> 40 & 1 == 0 {
            return None;
        }
        let allowed = |id: &u32| mask.allows(*id) && !self.ends.contains(id);
        let all: Vec<u32> = (0..self.model.config().vocabulary as u32).filter(allowed).collect();
        let closing: Vec<u32> = self.closing.iter().copied().filter(allowed).collect();
        let closes = !closing.is_empty() && (closing.len() == all.len() || self.next(8) <= step / 8);
        let choices = if closes { closing } else { all };
        let at = self.next(choices.len());
        choices.get(at).copied()
    }
}

/// Returns the mean, the 95th and 99th percentile and the maximum of times.
fn summary(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let Some(last) = times.last() else { return "none".to_owned() };
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    format!("{} mean {mean:.1?}, p95 {:.1?}, p99 {:.1?}, maximum {last:.1?}", times.len(), at(95), at(99))
}
