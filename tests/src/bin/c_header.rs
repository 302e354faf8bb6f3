//! Prints the C header, or writes it and the list of its functions to their committed files.

use siskin_tests::{header, paths};
use std::process::ExitCode;

fn main() -> ExitCode {
    let text = header::generated();
    if std::env::args().nth(1).as_deref() != Some("--bless") {
        print!("{text}");
        return ExitCode::SUCCESS;
    }
    let exports = header::functions(&text).join("\n") + "\n";
    for (path, text) in [(header::HEADER, text), (header::EXPORTS, exports)] {
        let path = paths::root().join(path);
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
