//! Prints `ARCHITECTURE.md` with the diagram of the crates, or writes it with `--bless`.

use siskin_tests::{arch_rules, paths};

fn main() -> std::io::Result<()> {
    let root = paths::root();
    let document =
        arch_rules::document_with_diagram(&arch_rules::Tree::read(&root)).map_err(std::io::Error::other)?;
    if std::env::args().any(|argument| argument == "--bless") {
        return std::fs::write(root.join(arch_rules::DIAGRAM_PATH), document);
    }
    print!("{document}");
    Ok(())
}
