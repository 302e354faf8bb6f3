//! Prints the public items of every library crate, or writes them to their snapshots with `--bless`.

use siskin_tests::{arch_rules, paths};

fn main() -> std::io::Result<()> {
    let root = paths::root();
    let bless = std::env::args().any(|argument| argument == "--bless");
    for (package, items) in arch_rules::library_apis(&arch_rules::Tree::read(&root)) {
        if bless {
            let path = arch_rules::snapshot_path(&package);
            std::fs::write(root.join(&path), items.join("\n") + "\n")?;
            println!("{path}: {} items", items.len());
        } else {
            println!("{}", items.join("\n"));
        }
    }
    Ok(())
}
