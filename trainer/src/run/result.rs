//! The file that a run results in.

use siskin_format::Result;
use siskin_format::file::AtomicFile;

use super::Run;
use crate::export;

impl Run {
    /// Writes the result: a model, or adapters on their own if the config exports them.
    pub fn write(&mut self, out: AtomicFile) -> Result<()> {
        let written = match self.adapter()? {
            Some(adapter) => {
                let contents = &self.setup().file_contents;
                adapter.write(contents.name.as_deref(), contents.provenance.clone(), out)?
            }
            None => {
                let parameters = self.result()?;
                export::write(&self.setup().file_contents, &parameters, out)?
            }
        };
        written.commit()
    }
}
