//! Models by name, from servers on this machine that have the faults of real ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

#[path = "hub/hugging_face.rs"]
mod hugging_face;
#[path = "hub/plan.rs"]
mod plan;
#[path = "hub/processes.rs"]
mod processes;
#[path = "hub/pypi.rs"]
mod pypi;
#[path = "hub/server.rs"]
mod server;
#[path = "hub/web.rs"]
mod web;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use server::Server;
use sha2::{Digest, Sha256};
use siskin_format::Error;
use siskin_hub::{Hub, HubSettings, ModelName};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("siskin-hub-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes that do not compress.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn settings(server: &Server, home: &Path) -> HubSettings {
    HubSettings {
        hugging_face: server.url.clone(),
        token: None,
        hugging_face_cache: home.join("huggingface"),
        python_index: format!("{}/simple", server.url),
        home: home.to_owned(),
        offline: false,
        certificates: None,
    }
}

fn pull(settings: &HubSettings, name: &str) -> Result<PathBuf, Error> {
    let name: ModelName = name.parse()?;
    Ok(Hub::new(settings.clone()).pull(&name, &mut |_, _| ControlFlow::Continue(()))?.path)
}

fn update(settings: &HubSettings, name: &str) -> Result<PathBuf, Error> {
    let name: ModelName = name.parse()?;
    Ok(Hub::new(settings.clone()).update(&name, &mut |_, _| ControlFlow::Continue(()))?.path)
}
