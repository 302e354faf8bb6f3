//! Prints the C header, or writes it and everything that is generated from it to their committed files.

use siskin_tests::wrappers::{self, GeneratedFile};
use siskin_tests::{header, paths};
use std::process::ExitCode;

fn main() -> ExitCode {
    let text = header::generated();
    if std::env::args().nth(1).as_deref() != Some("--bless") {
        print!("{text}");
        return ExitCode::SUCCESS;
    }
    match bless(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn bless(header: String) -> Result<(), String> {
    let wrappers = wrappers::generated(&header)?;
    let exports = header::functions(&header).join("\n") + "\n";
    let file = |path: &str, text| GeneratedFile { path: path.to_owned(), text };
    for folder in wrappers::FOLDERS {
        let folder = paths::root().join(folder);
        // Files of earlier rules must not stay.
        let removed = if folder.exists() { std::fs::remove_dir_all(&folder) } else { Ok(()) };
        let made = removed.and_then(|()| std::fs::create_dir_all(&folder));
        made.map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let both = [file(header::HEADER, header), file(header::EXPORTS, exports)];
    for GeneratedFile { path, text } in both.into_iter().chain(wrappers) {
        let path = paths::root().join(path);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
