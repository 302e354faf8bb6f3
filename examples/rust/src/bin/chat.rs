//! A conversation in the terminal: `chat MODEL`.

use std::io::{BufRead, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = siskin_examples::arguments(1, "chat MODEL");
    let model = siskin_examples::open(&arguments[0])?;
    // The session keeps the conversation in its KV cache: each message only processes its own tokens.
    let mut session = model.session(Default::default())?;
    for line in std::io::stdin().lock().lines() {
        for chunk in session.ask(&line?)? {
            print!("{}", chunk?);
            std::io::stdout().flush()?;
        }
        println!();
    }
    Ok(())
}
