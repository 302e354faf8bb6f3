//! The check that structured output is valid under its schema, by the Python package `jsonschema` and JSON Schema's test
//! suite, which its source package contains.

use super::bench_peers::peers;
use super::model;
use crate::shell::{Result, built, cargo, program, root, run};
use std::path::PathBuf;

const SCRIPT: &str = "tests/schemas/check.py";
const PACKAGE: &str = "jsonschema==4.26.0";
/// The number of schemas that are checked by default, of more than 2,000.
const SOME: &str = "100";

/// What the check needs.
pub(super) struct SchemaTools {
    python: PathBuf,
    model: PathBuf,
    suite: PathBuf,
}

/// Returns a Python that has `jsonschema`, the test suite, and a model for its tokenizer.
pub(super) fn need_tools() -> Result<SchemaTools> {
    let python = peers::python()?;
    peers::need(&python, "jsonschema", &[PACKAGE])?;
    let folder = root().join("target/schemas");
    let suite = folder.join(PACKAGE.replace("==", "-")).join("json/tests");
    if !suite.exists() {
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut download = program(&python, &["-m", "pip", "download", "--quiet", "--no-deps"]);
        run(download.args(["--no-binary", ":all:", "--dest"]).arg(&folder).arg(PACKAGE))?;
        let archive = folder.join(format!("{}.tar.gz", PACKAGE.replace("==", "-")));
        run(program("tar", &["-xzf"]).arg(archive).arg("-C").arg(&folder))?;
    }
    Ok(SchemaTools { python, model: model::bring("smollm2")?, suite })
}

/// Fails if a text is invalid under the schema that it was generated for.
pub(super) fn check(SchemaTools { python, model, suite }: &SchemaTools, all: bool) -> Result {
    // All programs, as the tests build them.
    run(&mut cargo(&["build", "--workspace", "--locked", "--bins"]))?;
    let mut command = program(python, &[]);
    command.arg(root().join(SCRIPT)).arg(built("debug").join("schema_outputs")).args([model, suite]);
    if !all {
        command.arg(SOME);
        println!("left out: all but {SOME} schemas; `cargo xtask test --all` checks them");
    }
    run(&mut command)
}
