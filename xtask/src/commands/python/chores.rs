//! Runs of the Python package beside other packages, which take long to install.

use crate::commands::bench_peers::peers;
use crate::shell::{self, Result, program, root, run};
use crate::tools;
use std::path::Path;

/// A run in an environment of its own.
pub(super) struct Chore {
    pub(super) name: &'static str,
    /// The environment, below `.models/`.
    environment: &'static str,
    modules: &'static str,
    packages: &'static [&'static str],
    /// The arguments of Python, once for each program.
    programs: fn() -> Result<Vec<Vec<String>>>,
}

pub(super) const CHORES: [Chore; 3] = [
    Chore {
        name: "compare",
        environment: "reference",
        modules: "accelerate, lm_eval, numpy, sentence_transformers, torch, transformers",
        packages: &[
            "accelerate==1.15.0",
            "lm-eval==0.4.13",
            "numpy==2.4.6",
            "sentence-transformers==6.2.0",
            "torch==2.15.0",
            "transformers==5.24.0",
        ],
        programs: compare,
    },
    Chore {
        name: "notebooks",
        environment: "notebooks",
        modules: "ipykernel, nbmake, numpy, pytest",
        packages: &["ipykernel==7.4.0", "nbmake==1.5.5", "numpy==2.4.6", "pytest==9.2.0"],
        programs: || {
            Ok(vec![words(&["-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbmake", "py/notebooks"])])
        },
    },
    Chore {
        name: "ray",
        environment: "ray",
        modules: "numpy, pandas, pyarrow, ray.data, ray.serve",
        packages: &["numpy==2.4.6", "pandas==3.1.1", "pyarrow==26.0.1", "ray[data,serve]==2.60.0"],
        programs: || {
            let minilm = model("minilm")?;
            Ok(vec![
                words(&["examples/python/ray_data.py", &minilm]),
                words(&["examples/python/ray_serve.py", &model("smollm2.gguf")?]),
            ])
        },
    },
];

impl Chore {
    /// Runs its programs with the package in `package`.
    pub(super) fn run(&self, package: &Path) -> Result {
        let python = tools::python(self.environment)?;
        peers::need(&python, self.modules, self.packages)?;
        for arguments in (self.programs)()? {
            let mut command = program(&python, &[]);
            command.env("PYTHONPATH", package).env("RAY_USAGE_STATS_ENABLED", "0");
            run(command.args(arguments))?;
        }
        Ok(())
    }
}

fn compare() -> Result<Vec<Vec<String>>> {
    let siskin = shell::built_member("siskin")?.display().to_string();
    let folder = shell::built("python-compare").display().to_string();
    let script = "py/tests/live/compare.py";
    Ok(vec![words(&[script, &siskin, &model("smollm2.gguf")?, &model("minilm")?, &folder])])
}

/// Returns the path of a downloaded model.
fn model(name: &str) -> Result<String> {
    let path = root().join(".models").join(name);
    match path.exists() {
        true => Ok(path.display().to_string()),
        false => Err(format!("{} is missing; run `cargo xtask model`", path.display())),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
