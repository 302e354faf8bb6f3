//! The `siskin` command line: one file for each command. `docs/cli.md` describes it.
#![forbid(unsafe_code)]

mod alias;
mod answer;
mod answer_question;
mod api_key;
mod bench;
mod bench_serve;
mod built_in_model;
mod chat;
mod classify;
mod convert;
mod device;
mod doctor;
mod draft;
mod drift_baseline;
mod embed;
mod env;
mod export;
mod fill_mask;
mod gate;
mod generate;
mod input_path;
mod inspect;
mod interrupt;
mod list;
mod logits;
mod lora;
mod manual;
mod memory;
mod model_name;
mod model_summary;
mod options;
mod output;
mod perplexity;
mod pull;
mod remove;
mod rerank;
mod run;
mod scores;
mod search;
mod serve;
mod show;
mod structured_output;
mod suggestions;
mod summarize;
mod table;
mod tag;
mod template_args;
mod terminal;
mod text_generation;
mod texts;
mod tokenize;
mod train;
mod transcribe;
mod translate;
mod verify;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use output::HintContext;
use std::process::ExitCode;

/// Run transformer models on this machine.
#[derive(Parser)]
#[command(name = "siskin", version)]
struct Cli {
    #[command(flatten)]
    open: options::OpenArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Chat(chat::Args),
    Generate(generate::Args),
    Translate(translate::Args),
    Summarize(summarize::Args),
    Embed(embed::Args),
    Rerank(rerank::Args),
    Search(search::Args),
    Classify(classify::Args),
    Tag(tag::Args),
    Answer(answer_question::Args),
    FillMask(fill_mask::Args),
    Transcribe(transcribe::Args),
    Serve(serve::Args),
    Pull(pull::Args),
    Show(show::Args),
    #[command(alias = "ls")]
    List(list::Args),
    #[command(alias = "remove")]
    Rm(remove::Args),
    Alias(alias::Args),
    Convert(convert::Args),
    Export(export::Args),
    Inspect(inspect::Args),
    Verify(verify::Args),
    Doctor(doctor::Args),
    Tokenize(tokenize::Args),
    Logits(logits::Args),
    Perplexity(perplexity::Args),
    Gate(gate::Args),
    DriftBaseline(drift_baseline::Args),
    Bench(bench::Args),
    BenchServe(bench_serve::Args),
    ApiKey(api_key::Args),
    Train(train::Args),
    Eval(train::EvalArgs),
    Completions(manual::CompletionArgs),
    Man(manual::ManArgs),
}

fn main() -> ExitCode {
    let matches = accepting_negative_numbers(Cli::command())
        .try_get_matches()
        .unwrap_or_else(|error| suggestions::explain(error).exit());
    let Cli { open, command } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match &command {
        Command::Run(args) => run::command(args, &open),
        Command::Chat(args) => chat::command(args, &open),
        Command::Generate(args) => generate::command(args, &open),
        Command::Translate(args) => translate::command(args, &open),
        Command::Summarize(args) => summarize::command(args, &open),
        Command::Embed(args) => embed::command(args, &open),
        Command::Rerank(args) => rerank::command(args, &open),
        Command::Search(args) => search::command(args, &open),
        Command::Classify(args) => classify::command(args, &open),
        Command::Tag(args) => tag::command(args, &open),
        Command::Answer(args) => answer_question::command(args, &open),
        Command::FillMask(args) => fill_mask::command(args, &open),
        Command::Transcribe(args) => transcribe::command(args, &open),
        Command::Serve(args) => serve::command(args, &open),
        Command::Pull(args) => pull::command(args, &open),
        Command::Show(args) => show::command(args, &open),
        Command::List(args) => list::command(args),
        Command::Rm(args) => remove::command(args, &open),
        Command::Alias(args) => alias::command(args, &open),
        Command::Convert(args) => convert::command(args, &open),
        Command::Export(args) => export::command(args, &open),
        Command::Inspect(args) => inspect::command(args, &open),
        Command::Verify(args) => verify::command(args, &open),
        Command::Doctor(args) => doctor::command(args, &open),
        Command::Tokenize(args) => tokenize::command(args, &open),
        Command::Logits(args) => logits::command(args, &open),
        Command::Perplexity(args) => perplexity::command(args, &open),
        Command::Gate(args) => gate::command(args, &open),
        Command::DriftBaseline(args) => drift_baseline::command(args, &open),
        Command::Bench(args) => bench::command(args, &open),
        Command::BenchServe(args) => bench_serve::command(args, open.quiet),
        Command::ApiKey(args) => api_key::command(args),
        Command::Train(args) => train::command(args, &open),
        Command::Eval(args) => train::evaluate(args, &open),
        Command::Completions(args) => manual::completions(args, Cli::command()),
        Command::Man(args) => manual::man(args, Cli::command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let hints = HintContext {
                has: &|option| has(&matches, option),
                larger_context: larger_context(&matches),
            };
            output::fail(&error, &hints)
        }
    }
}

/// Makes all options accept negative numbers as values, so that their own checks report what is expected.
fn accepting_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_value = |arg: &clap::Arg| arg.get_long().is_some() && arg.get_action().takes_values();
    command
        .mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(accepting_negative_numbers)
}

/// Returns true if the given command has this option.
fn has(matches: &ArgMatches, option: &str) -> bool {
    matches.subcommand_name().is_some_and(|name| command_has(name, option))
}

/// Returns the context length of the model that was opened, if --context is lower.
fn larger_context(matches: &ArgMatches) -> Option<usize> {
    let (_, command) = matches.subcommand()?;
    let given = command.try_get_one::<usize>("context").ok().flatten().copied()?;
    let longest = options::model_context()?;
    let used = if given == 0 { longest.min(options::DEFAULT_CONTEXT) } else { given };
    (used < longest).then_some(longest)
}

/// Returns true if the command `name` has this option.
fn command_has(name: &str, option: &str) -> bool {
    let program = Cli::command();
    let command = program.find_subcommand(name);
    command.is_some_and(|command| command.get_arguments().any(|known| known.get_long() == Some(option)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_do_not_contradict_each_other() {
        accepting_negative_numbers(Cli::command()).debug_assert();
    }
}
