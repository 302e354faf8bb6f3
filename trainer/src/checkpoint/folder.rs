//! The checkpoints of a run: the newest few, and the best.

use std::path::{Path, PathBuf};

use siskin_format::{Error, Result};

use super::Checkpoint;

/// A folder of checkpoints, with rotation.
#[derive(Clone, Debug)]
pub struct CheckpointFolder {
    path: PathBuf,
    keep: usize,
}

const BEST: &str = "best.checkpoint";

impl CheckpointFolder {
    /// Opens the folder at `path`, creating it if absent; it keeps the newest `keep` checkpoints and the best.
    pub fn new(path: &Path, keep: usize) -> Result<Self> {
        crate::run_folder::prepare(path)?;
        Ok(Self { path: path.to_owned(), keep: keep.max(1) })
    }

    /// Returns whether there is a folder at `path`, with checkpoints of a run.
    pub fn is_used(path: &Path) -> Result<bool> {
        Ok(path.is_dir() && Self::new(path, 1)?.steps()?.last().is_some())
    }

    /// Returns the steps that have a checkpoint, the earliest first.
    pub fn steps(&self) -> Result<Vec<u64>> {
        let io = |error| Error::io(self.path.display().to_string(), &error);
        let mut steps = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let name = name.to_string_lossy();
            let number = name.strip_prefix("step-").and_then(|rest| rest.strip_suffix(".checkpoint"));
            steps.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        steps.sort_unstable();
        Ok(steps)
    }

    fn place(&self, step: u64) -> PathBuf {
        self.path.join(format!("step-{step:08}.checkpoint"))
    }

    /// Writes the checkpoint of a step, and removes the oldest beyond the limit. An existing file stays until the new
    /// one is complete.
    pub fn save(&self, step: u64, best: bool, checkpoint: &Checkpoint) -> Result<()> {
        checkpoint.save(&self.place(step))?;
        if best {
            self.keep_as_best(step)?;
        }
        let steps = self.steps()?;
        for &old in steps.iter().take(steps.len().saturating_sub(self.keep)) {
            let place = self.place(old);
            std::fs::remove_file(&place).map_err(|error| Error::io(place.display().to_string(), &error))?;
        }
        Ok(())
    }

    /// Hard-links the checkpoint of a step as the best; copies it where hard links are unsupported.
    fn keep_as_best(&self, step: u64) -> Result<()> {
        let (from, to) = (self.place(step), self.path.join(BEST));
        let between = self.path.join(format!("{BEST}.new"));
        let io = |error| Error::io(to.display().to_string(), &error);
        // A killed run may have left it.
        let _ = std::fs::remove_file(&between);
        if std::fs::hard_link(&from, &between).is_err() {
            let mut source = std::fs::File::open(&from).map_err(io)?;
            let mut copy = std::fs::File::create_new(&between).map_err(io)?;
            std::io::copy(&mut source, &mut copy).and_then(|_| copy.sync_all()).map_err(io)?;
        }
        std::fs::rename(&between, &to).map_err(io)
    }

    /// Returns the newest readable checkpoint, and the errors of newer ones.
    pub fn newest(&self) -> Result<(Option<Checkpoint>, Vec<Error>)> {
        let mut wrong = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            match Checkpoint::open(&self.place(step)) {
                Ok(checkpoint) => return Ok((Some(checkpoint), wrong)),
                Err(error) => wrong.push(error),
            }
        }
        Ok((None, wrong))
    }

    /// Returns the best checkpoint, if one was kept.
    pub fn best(&self) -> Result<Option<Checkpoint>> {
        let place = self.path.join(BEST);
        place.exists().then(|| Checkpoint::open(&place)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_and_the_best_checkpoints_are_kept() {
        let path = std::env::temp_dir().join(format!("siskin-checkpoints-{}", std::process::id()));
        let folder = CheckpointFolder::new(&path, 2).unwrap();
        assert!(folder.best().unwrap().is_none());
        for step in [5, 10, 15, 20] {
            let checkpoint = Checkpoint { state: step.into(), tables: Default::default() };
            folder.save(step, step == 10, &checkpoint).unwrap();
        }
        assert_eq!(folder.steps().unwrap(), [15, 20]);
        let names = std::fs::read_dir(&path).unwrap().count();
        assert_eq!(names, 4, "the two newest, the best, the marker of a run's folder, and nothing else");
        assert_eq!(folder.best().unwrap().unwrap().state, 10);
        std::fs::write(folder.place(20), b"half of it").unwrap();
        let (newest, wrong) = folder.newest().unwrap();
        assert_eq!((newest.unwrap().state, wrong.len()), (15.into(), 1));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn the_best_checkpoint_is_written_once() {
        use std::os::unix::fs::MetadataExt;
        let path = std::env::temp_dir().join(format!("siskin-best-{}", std::process::id()));
        let folder = CheckpointFolder::new(&path, 2).unwrap();
        let number = |place: &Path| std::fs::metadata(place).unwrap().ino();
        for step in [1, 2] {
            std::fs::write(path.join("best.checkpoint.new"), b"half of it").unwrap();
            let checkpoint = Checkpoint { state: step.into(), tables: Default::default() };
            folder.save(step, true, &checkpoint).unwrap();
            assert_eq!(number(&path.join(BEST)), number(&folder.place(step)));
            assert_eq!(folder.best().unwrap().unwrap().state, step);
        }
        std::fs::remove_dir_all(path).unwrap();
    }
}
