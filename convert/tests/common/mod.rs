//! Helpers shared by the integration tests.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test file uses its part")]

use siskin_convert::import::safetensors;
use siskin_convert::{PackOptions, pack_file};
use siskin_format::file::{Bytes, File, StorageRole, Tensor};
use siskin_kernels::panel;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A temporary folder that is removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("siskin-convert-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/golden").join(name)
}

/// Packs without a recipe, and opens and verifies the result.
pub(crate) fn packed(source: &Path, folder: &Folder) -> File {
    packed_with(source, folder, &PackOptions::default())
}

pub(crate) fn packed_with(source: &Path, folder: &Folder, options: &PackOptions<'_>) -> File {
    let to = folder.join("packed.siskin");
    pack_file(source, &to, options).unwrap();
    let file = File::open(&to).unwrap();
    file.verify(&mut |_, _| true).unwrap();
    file
}

/// Returns one row of a tensor as floats; a vector is its only row.
pub(crate) fn row(tensor: &Tensor, row: usize) -> Vec<f32> {
    if tensor.role == StorageRole::Vector {
        return tensor.floats();
    }
    let size = tensor.panel.panel_bytes(tensor.columns).unwrap();
    let panel = &tensor.data[row / panel::ROWS * size..][..size];
    let mut values = vec![0.0; tensor.columns];
    assert!(panel::row_values(tensor.panel, panel, row % panel::ROWS, tensor.columns, &mut values));
    values
}

/// Returns shapes and values of the F32 tensors of a safetensors file.
pub(crate) fn floats(path: &Path) -> HashMap<String, (Vec<usize>, Vec<f32>)> {
    let tensors = safetensors::parse(Bytes::new(std::fs::read(path).unwrap())).unwrap();
    let floats = |tensor: &safetensors::SafetensorsTensor| {
        assert_eq!(tensor.dtype, "F32");
        let shape = tensor.shape.iter().map(|&size| size as usize).collect();
        (shape, tensor.data.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
    };
    tensors.iter().map(|(name, tensor)| (name.clone(), floats(tensor))).collect()
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
