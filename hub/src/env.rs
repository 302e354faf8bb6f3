//! Environment variables: those of other tools, so that a cache, a mirror or a token is set once for all.

use std::path::PathBuf;

/// Where models come from, and where they are kept.
#[derive(Clone)]
pub struct HubSettings {
    /// The URL of the Hugging Face hub or of a mirror (`HF_ENDPOINT`).
    pub hugging_face: String,
    /// The token for it (`HF_TOKEN`, or the file that `hf auth login` writes).
    pub token: Option<String>,
    /// The cache that other tools share (`HF_HUB_CACHE`, `HF_HOME`).
    pub hugging_face_cache: PathBuf,
    /// The simple index of Python packages (`PIP_INDEX_URL`, `UV_INDEX_URL`).
    pub python_index: String,
    /// The folder for what does not come from Hugging Face (`SISKIN_HOME`).
    pub home: PathBuf,
    /// Whether nothing is downloaded (`HF_HUB_OFFLINE`, `SISKIN_OFFLINE`).
    pub offline: bool,
    /// A file of certificate authorities in PEM that replace the system's (`SSL_CERT_FILE`).
    pub certificates: Option<PathBuf>,
}

/// Without the token.
impl std::fmt::Debug for HubSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubSettings")
            .field("hugging_face", &self.hugging_face)
            .field("has_token", &self.token.is_some())
            .field("hugging_face_cache", &self.hugging_face_cache)
            .field("python_index", &self.python_index)
            .field("home", &self.home)
            .field("offline", &self.offline)
            .field("certificates", &self.certificates)
            .finish()
    }
}

impl HubSettings {
    /// Reads the environment.
    pub fn from_env() -> Self {
        Self::from_variables(&|name| std::env::var(name).ok())
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        let path = |name: &str| get(name).map(PathBuf::from);
        let is_on = |name: &str| {
            get(name).is_some_and(|value| matches!(&*value.to_uppercase(), "1" | "ON" | "YES" | "TRUE"))
        };
        let user = path("HOME").or_else(|| path("USERPROFILE")).unwrap_or_default();
        let cache = path("XDG_CACHE_HOME").unwrap_or_else(|| user.join(".cache"));
        let hugging_face_home = path("HF_HOME").unwrap_or_else(|| cache.join("huggingface"));
        let token_file = path("HF_TOKEN_PATH").unwrap_or_else(|| hugging_face_home.join("token"));
        let stored = || Some(std::fs::read_to_string(token_file).ok()?.trim().to_owned());
        let token = get("HF_TOKEN").or_else(|| get("HUGGING_FACE_HUB_TOKEN")).or_else(stored);
        let trimmed = |url: String| url.trim_end_matches('/').to_owned();
        Self {
            hugging_face: trimmed(get("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned())),
            // A line break would end the header.
            token: token.filter(|token| !token.is_empty() && token.bytes().all(|c| c.is_ascii_graphic())),
            hugging_face_cache: path("HF_HUB_CACHE").unwrap_or_else(|| hugging_face_home.join("hub")),
            python_index: trimmed(
                get("PIP_INDEX_URL")
                    .or_else(|| get("UV_INDEX_URL"))
                    .unwrap_or_else(|| "https://pypi.org/simple".to_owned()),
            ),
            home: path("SISKIN_HOME").unwrap_or_else(|| cache.join("siskin")),
            offline: is_on("HF_HUB_OFFLINE") || is_on("SISKIN_OFFLINE"),
            certificates: path("SSL_CERT_FILE"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> HubSettings {
        HubSettings::from_variables(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_are_those_of_other_tools() {
        let plain = settings(&[("HOME", "/home/a")]);
        assert_eq!(plain.hugging_face_cache, PathBuf::from("/home/a/.cache/huggingface/hub"));
        assert_eq!((plain.home, plain.offline), (PathBuf::from("/home/a/.cache/siskin"), false));
        let moved = settings(&[("HOME", "/home/a"), ("XDG_CACHE_HOME", "/c"), ("HF_HUB_OFFLINE", "1")]);
        assert_eq!(moved.hugging_face_cache, PathBuf::from("/c/huggingface/hub"));
        assert!(moved.offline);
        let other = settings(&[
            ("HF_HOME", "/hf"),
            ("HF_ENDPOINT", "https://mirror.example/"),
            ("HF_TOKEN", "hf_x"),
            ("PIP_INDEX_URL", "https://pypi.example/simple/"),
            ("SISKIN_HOME", "/s"),
            ("SISKIN_OFFLINE", "0"),
        ]);
        assert_eq!(other.hugging_face_cache, PathBuf::from("/hf/hub"));
        assert_eq!(other.hugging_face, "https://mirror.example");
        assert_eq!(other.python_index, "https://pypi.example/simple");
        assert_eq!((other.token.as_deref(), other.offline), (Some("hf_x"), false));
        assert!(!format!("{other:?}").contains("hf_x"));
        assert_eq!(settings(&[("HF_TOKEN", "a\r\nx: y")]).token, None);
    }
}
