//! Code shared by `generate`, `translate` and `summarize`.

use crate::options::{ModelArgs, OpenArgs, SamplerArgs};
use crate::output::{self, Bar};
use crate::texts::{LongArgs, TextSourceArgs};
use clap::ValueEnum;
use serde_json::{Value, json};
use siskin::beam_search::{BeamEarlyStopping, SearchOptions};
use siskin::seq2seq::GeneratedText;
use siskin::tokenizer::EncodeOptions;
use siskin::{Error, FinishReason, Model, Result, Seq2Seq, Seq2SeqGenerateOptions, Seq2SeqOptions};
use std::path::PathBuf;

/// Generation options of these commands.
#[derive(clap::Args)]
pub(crate) struct WritingArgs {
    /// A .siskin, GGUF or ONNX file, or a model folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextSourceArgs,
    #[command(flatten)]
    search: SearchArgs,
    /// With one beam, sample tokens with the options under Sampling
    #[arg(long, conflicts_with = "greedy")]
    sample: bool,
    /// Maximum number of decoder tokens; 0: the model's own, at most 1024
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

/// Search options.
#[derive(clap::Args, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SearchArgs {
    /// Number of beams; 1: greedy search. Default: as in the model's generation config
    #[arg(long, value_name = "N", conflicts_with_all = ["sample", "greedy"])]
    beams: Option<usize>,
    /// Number of sequences to return, best first
    #[arg(long, default_value_t = 1, value_name = "N")]
    best: usize,
    /// Diverse beam search: number of groups of beams
    #[arg(long, value_name = "N", conflicts_with_all = ["sample", "greedy"])]
    groups: Option<usize>,
    /// Diverse beam search: penalty on a token's score for each beam of an earlier group that chose it
    #[arg(long, value_name = "VALUE", conflicts_with_all = ["sample", "greedy"])]
    diversity: Option<f32>,
    /// Length penalty: a score is divided by the length to this power; higher values prefer longer texts
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    length_penalty: Option<f32>,
    /// Early stopping: when to end a search that has as many finished texts as beams
    #[arg(long, value_enum, value_name = "WHEN", conflicts_with_all = ["sample", "greedy"])]
    early: Option<EarlyText>,
    /// No-repeat n-grams: never repeat an n-gram of this size; 0 is off
    #[arg(long, value_name = "N")]
    no_repeat: Option<usize>,
    /// Minimum number of tokens of a text
    #[arg(long, value_name = "N")]
    min: Option<usize>,
    /// Maximum number of tokens of a text
    #[arg(long, value_name = "N")]
    max: Option<usize>,
    /// Never generate this text (bad words). May be given several times
    #[arg(long, value_name = "TEXT")]
    never: Vec<String>,
    /// Never generate this token id. May be given several times
    #[arg(long, value_name = "ID")]
    suppress: Vec<u32>,
    /// Start every text with this prefix
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

/// Early stopping of beam search.
#[derive(Clone, Copy, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum EarlyText {
    /// Immediately
    Full,
    /// When no running beam has a better score at its current length
    Unlikely,
    /// When no running beam can reach a better score
    Never,
}

/// Tokenizes the text of `option`, both at the start of a text and after a space.
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
    /// Generates for all texts, and prints the results in input order. `task` returns the model's options for the task.
    pub(crate) fn run(
        &self,
        open: &OpenArgs,
        task: impl FnOnce(&Model) -> Result<Seq2SeqGenerateOptions>,
    ) -> Result<()> {
        let asks = self.sampler.asks();
        if asks && !self.sample {
            let message = "tokens are chosen by chance, as the options under Sampling say, with it alone; add it, or \
                leave those out";
            return Err(Error::argument("--sample", message));
        }
        let long = self.long.read(0)?;
        let model = open.model(&self.model, &self.model_args)?;
        let mut writing = Seq2SeqGenerateOptions { overflow: long, ..task(&model)? };
        self.search.over(&model, &mut writing, self.sample || self.sampler.is_greedy())?;
        if self.sample {
            writing.sampler = self.sampler.options()?;
            writing.dry_breakers = self.sampler.dry_breakers().unwrap_or(writing.dry_breakers);
        }
        let cache = self.model_args.kv;
        let mut writer =
            model.seq2seq(Seq2SeqOptions { context: self.context, cache, ..Seq2SeqOptions::default() })?;
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
    /// Overrides the task's options with those that were given. With `alone` there is one beam, regardless of them.
    pub(crate) fn over(
        &self,
        model: &Model,
        writing: &mut Seq2SeqGenerateOptions,
        alone: bool,
    ) -> Result<()> {
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
            writing.decoder_prefix =
                spellings(model, "--prefix", prefix)?.into_iter().next().unwrap_or_default();
        }
        Ok(())
    }

    /// Does the same for the options of beams and lengths.
    fn search(&self, search: &mut SearchOptions, alone: bool) -> Result<()> {
        let usual = SearchOptions::default();
        search.best = self.best;
        search.beams = self.beams.unwrap_or(search.beams);
        if alone {
            (search.beams, search.groups) = (1, 1);
        } else if self.beams.is_none() {
            // Returning several sequences needs at least as many beams.
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
            Some(EarlyText::Full) => BeamEarlyStopping::Full,
            Some(EarlyText::Unlikely) => BeamEarlyStopping::Unlikely,
            Some(EarlyText::Never) => BeamEarlyStopping::Never,
        };
        Ok(())
    }
}

fn write(
    writer: &mut Seq2Seq,
    texts: &[String],
    writing: &Seq2SeqGenerateOptions,
    (first, open): (usize, &OpenArgs),
) -> Result<Vec<Vec<GeneratedText>>> {
    let bar = Bar::of_texts(open, Some((first + texts.len()) as u64));
    writer.generate_with(texts, writing, &mut |done| {
        bar.set((first + done) as u64, (first + texts.len()) as u64);
        Ok(())
    })
}

/// The JSON output.
pub(crate) fn values(
    writer: &mut Seq2Seq,
    texts: &[String],
    writing: &Seq2SeqGenerateOptions,
) -> Result<Vec<Value>> {
    let all = writer.generate(texts, writing)?;
    Ok(all.iter().enumerate().map(|(index, candidates)| value(index, candidates)).collect())
}

fn value(index: usize, candidates: &[GeneratedText]) -> Value {
    let one = |candidate: &GeneratedText| {
        json!({"text": candidate.text, "score": output::round(candidate.score, 6), "ids": candidate.tokens,
            "ended": candidate.finish_reason == FinishReason::Eos})
    };
    let all: Vec<Value> = candidates.iter().map(one).collect();
    let text = candidates.first().map(|best| best.text.clone());
    json!({"index": index, "text": text, "candidates": all})
}

fn print(index: usize, candidates: &[GeneratedText], as_json: bool) -> Result<()> {
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
