//! Code shared by `generate`, `translate` and `summarize`.

use crate::options::{ModelArgs, OpenArgs, SamplerArgs};
use crate::output::{self, Bar};
use crate::texts::{OverflowArgs, TextSourceArgs};
use clap::ValueEnum;
use serde_json::{Value, json};
use siskin::beam_search::{BeamEarlyStopping, SearchOptions};
use siskin::seq2seq::GeneratedText;
use siskin::tokenizer::EncodeOptions;
use siskin::{Error, Model, Result, Seq2Seq, Seq2SeqGenerateOptions, Seq2SeqOptions};
use std::path::PathBuf;

/// Generation options of these commands.
#[derive(clap::Args)]
pub(crate) struct TextGenerationArgs {
    /// Model: a name (see `siskin pull --help`), a .siskin, GGUF or ONNX file, or a folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextSourceArgs,
    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
    /// Maximum number of decoder tokens; 0 means the model's own, at most 1024
    #[arg(short, long, default_value_t = 0, value_name = "N")]
    context: usize,
    #[command(flatten)]
    overflow: OverflowArgs,
    #[command(flatten)]
    search: SearchArgs,
    /// Sample tokens, with the options under Sampling, in place of greedy decoding and beam search
    #[arg(long, conflicts_with = "greedy", help_heading = "Decoding")]
    sample: bool,
    #[command(flatten)]
    sampler: SamplerArgs,
    #[command(flatten)]
    model_args: ModelArgs,
}

/// Search options.
#[derive(clap::Args, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Decoding")]
pub(crate) struct SearchArgs {
    /// Beam search with N beams; 1 means greedy decoding; default: from the model's generation config
    #[arg(long, value_name = "N", conflicts_with_all = ["sample", "greedy"])]
    beams: Option<usize>,
    /// Number of candidates to print for each text, best first
    #[arg(long, default_value_t = 1, value_name = "N")]
    n_best: usize,
    /// Diverse beam search: number of groups of beams
    #[arg(long, value_name = "N", conflicts_with_all = ["sample", "greedy"])]
    beam_groups: Option<usize>,
    /// Diverse beam search: penalty on a token's score for each beam of an earlier group that chose it
    #[arg(long, value_name = "VALUE", conflicts_with_all = ["sample", "greedy"])]
    diversity_penalty: Option<f32>,
    /// Length penalty: a score is divided by the length to this power; higher values prefer longer texts
    #[arg(long, value_name = "VALUE")]
    length_penalty: Option<f32>,
    /// When to end a beam search that has as many finished candidates as beams
    #[arg(long, value_enum, value_name = "WHEN", conflicts_with_all = ["sample", "greedy"])]
    early_stopping: Option<EarlyStoppingArg>,
    /// Never repeat an n-gram of N tokens; 0 disables it
    #[arg(long, value_name = "N")]
    no_repeat_ngram_size: Option<usize>,
    /// Minimum number of tokens to generate
    #[arg(long, value_name = "N")]
    min_tokens: Option<usize>,
    /// Maximum number of tokens to generate; default: from the model's generation config
    #[arg(short = 'n', long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Never generate this text. May be given several times
    #[arg(long, value_name = "TEXT")]
    bad_words: Vec<String>,
    /// Never generate this token. May be given several times
    #[arg(long, value_name = "ID")]
    suppress_tokens: Vec<u32>,
    /// Start every output with this text
    #[arg(long, value_name = "TEXT")]
    target_prefix: Option<String>,
}

impl Default for SearchArgs {
    fn default() -> Self {
        Self {
            beams: None,
            n_best: 1,
            beam_groups: None,
            diversity_penalty: None,
            length_penalty: None,
            early_stopping: None,
            no_repeat_ngram_size: None,
            min_tokens: None,
            max_tokens: None,
            bad_words: Vec::new(),
            suppress_tokens: Vec::new(),
            target_prefix: None,
        }
    }
}

/// Early stopping of beam search, by the values of Transformers.
#[derive(Clone, Copy, ValueEnum, serde::Deserialize)]
#[serde(try_from = "serde_json::Value")]
enum EarlyStoppingArg {
    /// Immediately
    True,
    /// When no running beam has a better score at its current length
    False,
    /// When no running beam can reach a better score
    Never,
}

impl TryFrom<Value> for EarlyStoppingArg {
    type Error = String;

    fn try_from(value: Value) -> std::result::Result<Self, String> {
        match (value.as_bool(), value.as_str()) {
            (Some(true), _) => Ok(Self::True),
            (Some(false), _) => Ok(Self::False),
            (_, Some("never")) => Ok(Self::Never),
            _ => Err("expected true, false or \"never\"".to_owned()),
        }
    }
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
        true => Err(Error::argument(option, "the text encodes to no tokens; use another text")),
        false => Ok(all),
    }
}

impl TextGenerationArgs {
    /// Generates for all texts, and prints the results in input order. `task` returns the model's options for the task.
    pub(crate) fn run(
        &self,
        open: &OpenArgs,
        task: impl FnOnce(&Model) -> Result<Seq2SeqGenerateOptions>,
    ) -> Result<()> {
        if self.sampler.has_sampling_options() && !self.sample {
            let message = "sampling options have no effect without --sample; add it, or remove them";
            return Err(Error::argument("--sample", message));
        }
        let long = self.overflow.mode(0)?;
        let model = open.model(&self.model, &self.model_args)?;
        let mut options = Seq2SeqGenerateOptions { overflow: long, ..task(&model)? };
        self.search.over(&model, &mut options, self.sample || self.sampler.is_greedy())?;
        if self.sample {
            options.sampler = self.sampler.options()?;
            options.dry_breakers = self.sampler.dry_breakers().unwrap_or(options.dry_breakers);
        }
        let cache = self.model_args.kv;
        let mut writer =
            model.seq2seq(Seq2SeqOptions { context: self.context, cache, ..Seq2SeqOptions::default() })?;
        self.texts.each_in_silence(open, |first, texts| {
            let all = write(&mut writer, texts, &options, (first, open))?;
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
        options: &mut Seq2SeqGenerateOptions,
        alone: bool,
    ) -> Result<()> {
        self.search(&mut options.search, alone)?;
        let rules = &mut options.search.logits_processors;
        rules.no_repeat_ngram_size = self.no_repeat_ngram_size.unwrap_or(rules.no_repeat_ngram_size);
        if let Some(min) = self.min_tokens {
            (rules.min_tokens, rules.min_length) = (min, 0);
        }
        rules.suppress.extend(&self.suppress_tokens);
        for text in &self.bad_words {
            rules.bad_words.extend(spellings(model, "--bad-words", text)?);
        }
        if let Some(prefix) = &self.target_prefix {
            options.decoder_prefix =
                spellings(model, "--target-prefix", prefix)?.into_iter().next().unwrap_or_default();
        }
        Ok(())
    }

    /// Does the same for the options of beams and lengths.
    fn search(&self, search: &mut SearchOptions, alone: bool) -> Result<()> {
        let usual = SearchOptions::default();
        search.num_return_sequences = self.n_best;
        search.beams = self.beams.unwrap_or(search.beams);
        if alone {
            (search.beams, search.num_beam_groups) = (1, 1);
        } else if self.beams.is_none() {
            // Returning several sequences needs at least as many beams.
            let groups = self.beam_groups.unwrap_or(1).max(1);
            let beams = search.beams.max(self.n_best);
            search.beams = beams.checked_next_multiple_of(groups).unwrap_or(usize::MAX);
        }
        let fits = search.beams.is_multiple_of(search.num_beam_groups);
        search.num_beam_groups =
            self.beam_groups.unwrap_or(if fits { search.num_beam_groups } else { usual.num_beam_groups });
        let own =
            if search.num_beam_groups == 1 { usual.diversity_penalty } else { search.diversity_penalty };
        search.diversity_penalty = self.diversity_penalty.unwrap_or(own);
        search.length_penalty = self.length_penalty.unwrap_or(search.length_penalty);
        search.max_tokens = self.max_tokens.unwrap_or(search.max_tokens);
        search.early_stopping = match self.early_stopping {
            None => search.early_stopping,
            Some(_) if search.beams == 1 => {
                return Err(Error::argument("--early-stopping", "no effect with one beam; set --beams"));
            }
            Some(EarlyStoppingArg::True) => BeamEarlyStopping::Full,
            Some(EarlyStoppingArg::False) => BeamEarlyStopping::Unlikely,
            Some(EarlyStoppingArg::Never) => BeamEarlyStopping::Never,
        };
        Ok(())
    }
}

fn write(
    writer: &mut Seq2Seq,
    texts: &[String],
    options: &Seq2SeqGenerateOptions,
    (first, open): (usize, &OpenArgs),
) -> Result<Vec<Vec<GeneratedText>>> {
    let bar = Bar::of_texts(open.quiet, Some((first + texts.len()) as u64));
    writer.generate_with(texts, options, &mut |done| {
        bar.set((first + done) as u64, (first + texts.len()) as u64);
        Ok(())
    })
}

/// The JSON output.
pub(crate) fn values(
    writer: &mut Seq2Seq,
    texts: &[String],
    options: &Seq2SeqGenerateOptions,
) -> Result<Vec<Value>> {
    let all = writer.generate(texts, options)?;
    Ok(all.iter().enumerate().map(|(index, candidates)| value(index, candidates)).collect())
}

fn value(index: usize, candidates: &[GeneratedText]) -> Value {
    let one = |candidate: &GeneratedText| {
        json!({"text": candidate.text, "score": output::round(candidate.score, 6), "ids": candidate.tokens,
            "finish_reason": candidate.finish_reason.name()})
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
