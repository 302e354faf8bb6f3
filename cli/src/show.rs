//! `siskin show`: what a model by name is, before it is downloaded.

use std::path::Path;

use crate::memory::{self, SystemMemory};
use crate::model_summary::ModelSummary;
use crate::options::{NoPackedFiles, OpenArgs};
use crate::{model_name, output};
use serde_json::{Value, json};
use siskin::{Error, ErrorKind, Result};
use siskin_convert::import;
use siskin_hub::{Hub, ModelName, PullPlan};

/// Show what a model is and the memory that it needs, without downloading it
///
/// Of a GGUF file that is not in the cache, the first bytes are downloaded; `siskin pull` continues behind them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model: a name (see `siskin pull --help`), a file or a folder
    model: ModelName,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let name = match args.model.to_string() {
        // A path comes before an alias, as in other commands.
        text if Path::new(&text).exists() => ModelName::Path(text.into()),
        _ => args.model.clone(),
    };
    show(&model_name::hub(), &name, args.json, open)
}

/// Prints what a model is.
pub(crate) fn show(hub: &Hub, name: &ModelName, as_json: bool, open: &OpenArgs) -> Result<()> {
    let preview = Preview::new(hub, name, open)?;
    match as_json {
        true => output::json(&preview.to_json()),
        false => output::report(preview.lines(), false),
    }
}

/// What a pull would download, and what is known about the model.
pub(crate) struct Preview {
    name: String,
    plan: PullPlan,
    summary: Option<ModelSummary>,
    memory: Option<SystemMemory>,
}

impl Preview {
    /// Asks the source of a model that is not in the cache.
    pub(crate) fn new(hub: &Hub, name: &ModelName, open: &OpenArgs) -> Result<Self> {
        let plan = hub.plan(name, &mut import::needs_longer_head)?;
        let found = match (&plan.path, &plan.head) {
            (Some(path), _) => ModelSummary::of_path(path, open),
            (None, Some(head)) => ModelSummary::of_head(head).map(Some),
            (None, None) => Ok(None),
        };
        let summary = found.unwrap_or_else(|error| {
            output::note(open.quiet, format!("only the size of {name} is known: {error}"));
            None
        });
        Ok(Self { name: name.to_string(), plan, summary, memory: memory::system() })
    }

    fn license(&self) -> Option<&str> {
        let stated = self.summary.as_ref().and_then(|summary| summary.license.as_deref());
        self.plan.license.as_deref().or(stated)
    }

    /// Returns the pinned name; `None` for a path.
    fn pinned(&self) -> Option<String> {
        self.plan.pinned.as_ref().map(ToString::to_string)
    }

    fn to_json(&self) -> Value {
        let mut object = json!({
            "name": self.name,
            "pinned": self.pinned(),
            "license": self.license(),
            "bytes": self.plan.bytes(),
            "cached_bytes": self.plan.cached_bytes,
            "path": self.plan.path.as_ref().map(|path| path.display().to_string()),
            "files": self.plan.files.iter().map(|file| json!({"path": file.path, "bytes": file.bytes})).collect::<Vec<_>>(),
        });
        if let Some(summary) = &self.summary {
            object["architecture"] = summary.architecture.as_str().into();
            object["parameters"] = summary.parameters.into();
            object["quantization"] = summary.quantization.clone().into();
            object["max_context"] = summary.max_context.into();
            object["template"] = summary.has_template.into();
            object["context"] = summary.context().into();
            object["memory"] = summary.memory(self.plan.bytes(), summary.context()).into();
        }
        if let Some(memory) = self.memory {
            object["physical_memory"] = memory.physical.into();
        }
        object
    }

    fn lines(&self) -> Vec<(&'static str, Value)> {
        let cached = match (&self.plan.path, self.plan.cached_bytes) {
            (Some(path), _) => path.display().to_string(),
            (None, 0) => "no".to_owned(),
            (None, bytes) => format!("{} of it", output::bytes(bytes)),
        };
        let mut lines = vec![("name", self.name.clone().into())];
        lines.extend(self.pinned().map(|pinned| ("pinned", pinned.into())));
        lines.extend(self.license().map(|license| ("license", license.into())));
        lines.push(("size", output::bytes(self.plan.bytes()).into()));
        lines.extend(self.pinned().map(|_| ("in the cache", cached.into())));
        let Some(summary) = &self.summary else { return lines };
        let template = if summary.has_template { "yes" } else { "no" };
        lines.push(("architecture", summary.architecture.as_str().into()));
        lines.push(("parameters", parameters(summary.parameters).into()));
        lines.extend(summary.quantization.as_deref().map(|kind| ("quantization", kind.into())));
        lines.push(("context length", summary.max_context.into()));
        lines.push(("chat template", template.into()));
        let has = self.memory.map(|memory| format!("; this machine has {}", output::bytes(memory.physical)));
        lines.push(("memory", format!("{}{}", self.needed(summary), has.unwrap_or_default()).into()));
        lines
    }

    /// Returns the memory that the model needs, as text.
    fn needed(&self, summary: &ModelSummary) -> String {
        let context = summary.context();
        let bytes = output::bytes(summary.memory(self.plan.bytes(), context));
        format!("{bytes} with a context of {context} tokens")
    }

    /// Prints a short summary to standard error, and a warning if the model does not fit into memory.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if its weights alone exceed memory and swap.
    pub(crate) fn announce(&self, quiet: bool) -> Result<()> {
        let mut facts: Vec<String> = Vec::new();
        if let Some(summary) = &self.summary {
            facts.push(summary.architecture.clone());
            facts.push(format!("{} parameters", parameters(summary.parameters)));
            facts.extend(summary.quantization.clone());
        }
        facts.push(output::bytes(self.plan.bytes()));
        facts.extend(self.license().map(|license| format!("license {license}")));
        facts.extend(self.summary.as_ref().map(|summary| format!("needs {}", self.needed(summary))));
        output::note(quiet, format!("{}: {}", self.name, facts.join(", ")));
        match self.memory {
            Some(memory) => self.check(memory),
            None => Ok(()),
        }
    }

    fn check(&self, SystemMemory { physical, swap }: SystemMemory) -> Result<()> {
        let weights = self.plan.bytes();
        if weights > physical.saturating_add(swap) {
            let message = format!(
                "its weights have {}, but this machine has {} of memory and {} of swap; choose a smaller type or model",
                output::bytes(weights),
                output::bytes(physical),
                output::bytes(swap)
            );
            return Err(Error::new(ErrorKind::Memory, &self.name, message));
        }
        let Some(summary) = &self.summary else { return Ok(()) };
        if summary.memory(weights, summary.context()) > physical {
            let advice = match summary.longest_context(weights, physical) {
                Some(context) => format!("use --context {context} or less"),
                None => "it will be slow".to_owned(),
            };
            let has = output::bytes(physical);
            output::warn(format!(
                "{} needs {}, more than the {has} of this machine; {advice}",
                self.name,
                self.needed(summary)
            ));
        }
        Ok(())
    }
}

/// Formats a number of parameters as the names of models do.
fn parameters(count: u64) -> String {
    match count {
        0..1_000_000 => count.to_string(),
        1_000_000..1_000_000_000 => format!("{:.1}M", count as f64 / 1e6),
        _ => format!("{:.2}B", count as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview(bytes: u64) -> Preview {
        let files = vec![siskin_hub::PlannedFile { path: "a.gguf".to_owned(), bytes }];
        let plan = PullPlan { pinned: None, path: None, files, cached_bytes: 0, license: None, head: None };
        Preview { name: "a".to_owned(), plan, summary: None, memory: None }
    }

    #[test]
    fn weights_must_fit_into_memory_and_swap() {
        let memory = SystemMemory { physical: 1000, swap: 500 };
        for (bytes, fits) in [(1000, true), (1500, true), (1501, false), (u64::MAX, false)] {
            let checked = preview(bytes).check(memory);
            assert_eq!(checked.is_ok(), fits, "{bytes}");
            assert!(checked.is_ok() || checked.is_err_and(|error| error.kind() == ErrorKind::Memory));
        }
    }

    #[test]
    fn parameters_have_units() {
        for (count, text) in [(999, "999"), (134_515_008, "134.5M"), (7_615_616_512, "7.62B")] {
            assert_eq!(parameters(count), text);
        }
    }
}
