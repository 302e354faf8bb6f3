//! What `generate`, `translate` and `summarise` share.

use crate::options::{ModelArgs, OpenArgs, SamplerArgs};
use crate::output::{self, Bar};
use crate::texts::{LongArgs, TextArgs};
use clap::ValueEnum;
use serde_json::{Value, json};
use siskin::beam_search::{Early, SearchOptions};
use siskin::seq2seq::Candidate;
use siskin::tokenizer::EncodeOptions;
use siskin::{Error, Model, Result, Writer, WriterOptions, Writing};
use std::path::PathBuf;

/// How texts are written.
#[derive(clap::Args)]
pub(crate) struct WritingArgs {
    /// A .siskin, GGUF or ONNX file, or a model folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextArgs,
    #[command(flatten)]
    search: SearchArgs,
    /// With one beam, choose tokens by chance, as the options under Sampling say
    #[arg(long, conflicts_with = "greedy")]
    sample: bool,
    /// The most tokens of the model's decoder; 0: the model's own, but no more than 1024
    #[arg(long, default_value_t = 0, value_name = "N")]
    context: usize,
    #[command(flatten)]
    long: LongArgs,
    #[command(flatten)]
    sampler: SamplerArgs,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each text
    #[arg(long, help_heading = "Options")]
    json: bool,
}

/// What is looked for.
#[derive(clap::Args, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SearchArgs {
    /// Texts that go on at the same time, of which the likeliest are kept; 1: one token after the other. What the model
    /// was made for where nothing is said
    #[arg(long, value_name = "N", conflicts_with_all = ["sample", "greedy"])]
    beams: Option<usize>,
    /// Give so many texts, the best first
    #[arg(long, default_value_t = 1, value_name = "N")]
    best: usize,
    /// Divide the beams into groups, each of which looks for something else
    #[arg(long, value_name = "N", conflicts_with_all = ["sample", "greedy"])]
    groups: Option<usize>,
    /// What a token loses for every beam of an earlier group that takes it
    #[arg(long, value_name = "VALUE", conflicts_with_all = ["sample", "greedy"])]
    diversity: Option<f32>,
    /// The power of a text's length that its score is divided by: more prefers longer texts
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    length_penalty: Option<f32>,
    /// When a search ends that has as many texts as beams
    #[arg(long, value_enum, value_name = "WHEN", conflicts_with_all = ["sample", "greedy"])]
    early: Option<EarlyText>,
    /// No group of so many tokens comes twice; 0 is off
    #[arg(long, value_name = "N")]
    no_repeat: Option<usize>,
    /// The fewest tokens of a text
    #[arg(long, value_name = "N")]
    min: Option<usize>,
    /// The most tokens of a text
    #[arg(long, value_name = "N")]
    max: Option<usize>,
    /// Never write this. May be given several times
    #[arg(long, value_name = "TEXT")]
    never: Vec<String>,
    /// Never take this token. May be given several times
    #[arg(long, value_name = "ID")]
    suppress: Vec<u32>,
    /// Begin every text with this
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
}

impl Default for SearchArgs {
    fn default() -> Self {
        Self {
            beams: None,
            best: 1,
            groups: None,
            diversity: None,
            length_penalty: None,
            early: None,
            no_repeat: None,
            min: None,
            max: None,
            never: Vec::new(),
            suppress: Vec::new(),
            prefix: None,
        }
    }
}

/// When a search has found enough.
#[derive(Clone, Copy, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum EarlyText {
    /// At once
    Full,
    /// Where what goes on is not likelier so far
    Unlikely,
    /// Where nothing can become likelier
    Never,
}

/// A text of `option` as the tokens that it may be spelt with, at the beginning of a text and inside.
fn spellings(model: &Model, option: &str, text: &str) -> Result<Vec<Vec<u32>>> {
    let options = EncodeOptions { add_special: false, parse_special: false };
    let mut all = Vec::new();
    for text in [text.to_owned(), format!(" {text}")] {
        let ids = model.tokenizer()?.encode(&text, options)?;
        if !ids.is_empty() && !all.contains(&ids) {
            all.push(ids);
        }
    }
    match text.is_empty() || all.is_empty() {
        true => Err(Error::argument(option, "the text has no tokens; give one that has some")),
        false => Ok(all),
    }
}

impl WritingArgs {
    /// Writes for all texts, and prints what was written in their order. `task` is what the model was made for.
    pub(crate) fn run(&self, open: &OpenArgs, task: impl FnOnce(&Model) -> Result<Writing>) -> Result<()> {
        let asks = self.sampler.asks();
        if asks && !self.sample {
            let message = "tokens are chosen by chance, as the options under Sampling say, with it alone; add it, or \
                leave those out";
            return Err(Error::argument("--sample", message));
        }
        let long = self.long.read(0)?;
        let model = open.model(&self.model, &self.model_args)?;
        let mut writing = Writing { long, ..task(&model)? };
        self.search.over(&model, &mut writing, self.sample || self.sampler.is_greedy())?;
        if self.sample {
            writing.sampler = self.sampler.options()?;
            writing.dry_breakers = self.sampler.dry_breakers().unwrap_or(writing.dry_breakers);
        }
        let cache = self.model_args.kv;
        let mut writer =
            model.writer(WriterOptions { context: self.context, cache, ..WriterOptions::default() })?;
        self.texts.each_in_silence(open, |first, texts| {
            let all = write(&mut writer, texts, &writing, (first, open))?;
            for (index, candidates) in all.iter().enumerate() {
                print(first + index, candidates, self.json)?;
            }
            Ok(())
        })
    }
}

impl SearchArgs {
    /// Puts what was said over what a task asks for. With `alone` there is one beam, whatever that is.
    pub(crate) fn over(&self, model: &Model, writing: &mut Writing, alone: bool) -> Result<()> {
        self.search(&mut writing.search, alone)?;
        let rules = &mut writing.search.rules;
        rules.no_repeat = self.no_repeat.unwrap_or(rules.no_repeat);
        if let Some(min) = self.min {
            (rules.min_tokens, rules.min_length) = (min, 0);
        }
        rules.suppress.extend(&self.suppress);
        for text in &self.never {
            rules.bad_words.extend(spellings(model, "--never", text)?);
        }
        if let Some(prefix) = &self.prefix {
            writing.prefix = spellings(model, "--prefix", prefix)?.into_iter().next().unwrap_or_default();
        }
        Ok(())
    }

    /// The same about beams and lengths.
    fn search(&self, search: &mut SearchOptions, alone: bool) -> Result<()> {
        let usual = SearchOptions::default();
        search.best = self.best;
        search.beams = self.beams.unwrap_or(search.beams);
        if alone {
            (search.beams, search.groups) = (1, 1);
        } else if self.beams.is_none() {
            // Who asks for several texts asks for as many beams.
            let groups = self.groups.unwrap_or(1).max(1);
            let beams = search.beams.max(self.best);
            search.beams = beams.checked_next_multiple_of(groups).unwrap_or(usize::MAX);
        }
        let fits = search.beams.is_multiple_of(search.groups);
        search.groups = self.groups.unwrap_or(if fits { search.groups } else { usual.groups });
        let own = if search.groups == 1 { usual.diversity } else { search.diversity };
        search.diversity = self.diversity.unwrap_or(own);
        search.length_penalty = self.length_penalty.unwrap_or(search.length_penalty);
        search.max_tokens = self.max.unwrap_or(search.max_tokens);
        search.early = match self.early {
            None => search.early,
            Some(_) if search.beams == 1 => {
                return Err(Error::argument(
                    "--early",
                    "is about several beams; ask for some with `--beams`",
                ));
            }
            Some(EarlyText::Full) => Early::Full,
            Some(EarlyText::Unlikely) => Early::Unlikely,
            Some(EarlyText::Never) => Early::Never,
        };
        Ok(())
    }
}

fn write(
    writer: &mut Writer,
    texts: &[String],
    writing: &Writing,
    (first, open): (usize, &OpenArgs),
) -> Result<Vec<Vec<Candidate>>> {
    let bar = Bar::of_texts(open, Some((first + texts.len()) as u64));
    writer.write_with(texts, writing, &mut |done| {
        bar.set((first + done) as u64, (first + texts.len()) as u64);
        Ok(())
    })
}

/// What `--json` prints.
pub(crate) fn values(writer: &mut Writer, texts: &[String], writing: &Writing) -> Result<Vec<Value>> {
    let all = writer.write(texts, writing)?;
    Ok(all.iter().enumerate().map(|(index, candidates)| value(index, candidates)).collect())
}

fn value(index: usize, candidates: &[Candidate]) -> Value {
    let one = |candidate: &Candidate| {
        json!({"text": candidate.text, "score": output::round(candidate.score, 6), "ids": candidate.tokens,
            "ended": candidate.ended})
    };
    let all: Vec<Value> = candidates.iter().map(one).collect();
    let text = candidates.first().map(|best| best.text.clone());
    json!({"index": index, "text": text, "candidates": all})
}

fn print(index: usize, candidates: &[Candidate], as_json: bool) -> Result<()> {
    if as_json {
        return output::json(&value(index, candidates));
    }
    match candidates {
        [] => output::line(""),
        [one] => output::line(&one.text),
        all => all
            .iter()
            .try_for_each(|one| output::line(format_args!("{index}\t{:.4}\t{}", one.score, one.text))),
    }
}
