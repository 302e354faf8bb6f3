//! Models in OCI registries, as Docker, Harbor and Ollama store them.

use serde::Deserialize;
use siskin_format::{Error, ErrorKind, Result};
use ureq::Body;
use ureq::http::Response;

use super::FoundModel;
use crate::digest::{FileDigest, sha256};
use crate::download::{RemoteContent, RemoteFile};
use crate::name::{RemoteModel, is_relative};
use crate::pick::{PickedFiles, pick};
use crate::transport::{GetRequest, Transport, read_body, refused};
use crate::url::{escape_path, is_loopback};

const MANIFEST_TYPES: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
const MAX_MANIFEST_BYTES: u64 = 4 << 20;
const MAX_TOKEN_BYTES: u64 = 1 << 20;
/// The media types of layers that are a model file without a name, and the name that they get.
const UNNAMED_MODELS: [(&str, &str); 2] = [
    ("application/vnd.ollama.image.model", "model.gguf"),
    ("application/vnd.docker.ai.gguf.v3", "model.gguf"),
];
const TITLE: &str = "org.opencontainers.image.title";

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// Finds the model of a tag or digest.
pub(crate) fn find(
    transport: &Transport,
    registry: &str,
    repository: &str,
    reference: &str,
) -> Result<FoundModel> {
    let scheme = if is_loopback(registry) { "http" } else { "https" };
    let base = format!("{scheme}://{registry}/v2/{repository}");
    let url = format!("{base}/manifests/{reference}");
    let mut request = GetRequest { accept: Some(MANIFEST_TYPES), ..GetRequest::new(&url) };
    let mut response = transport.get(&request)?;
    let mut token = None;
    if response.status() == 401 {
        token = anonymous_token(transport, &response, repository)?;
        request.token = token.as_deref();
        response = transport.get(&request)?;
    }
    if response.status() != 200 {
        return Err(refused(&url, &response));
    }
    let bytes = read_body(&url, response, MAX_MANIFEST_BYTES)?;
    let digest = sha256(&bytes);
    let name = format!("oci:{registry}/{repository}");
    if reference
        .strip_prefix("sha256:")
        .is_some_and(|expected| !expected.eq_ignore_ascii_case(&digest.to_string()))
    {
        return Err(Error::new(
            ErrorKind::Integrity,
            name,
            format!("the digest of the manifest is {digest}"),
        ));
    }
    let (picked, layers) = model_layers(&bytes).map_err(|error| error.within(&name))?;
    let mut files = Vec::new();
    for (path, layer) in layers {
        let digits = layer.digest.strip_prefix("sha256:").unwrap_or(&layer.digest);
        let content = RemoteContent::Digest(FileDigest::sha256(digits).map_err(|error| error.within(&name))?);
        let url = format!("{base}/blobs/{}", layer.digest);
        files.push((path, RemoteFile { url, token: token.clone(), bytes: layer.size, content }));
    }
    Ok(FoundModel {
        pinned: RemoteModel::Oci {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            reference: format!("sha256:{digest}"),
        },
        version: Some(digest.to_string()),
        picked,
        files,
    })
}

/// Returns the files of the model of a manifest, and their layers.
fn model_layers(manifest: &[u8]) -> Result<(PickedFiles, Vec<(String, Layer)>)> {
    let manifest: Manifest = serde_json::from_slice(manifest)
        .map_err(|error| Error::corrupt("manifest", format!("not a manifest: {error}")))?;
    let named = manifest.layers.into_iter().filter_map(|layer| Some((layer.file_name()?, layer)));
    let mut layers: Vec<(String, Layer)> = named.collect();
    let names: Vec<String> = layers.iter().map(|(name, _)| name.clone()).collect();
    let picked = pick(&names, None)?;
    layers.retain(|(path, _)| picked.paths().contains(path));
    Ok((picked, layers))
}

impl Layer {
    /// Returns the name of the file; `None` for layers that have none, such as licenses.
    fn file_name(&self) -> Option<String> {
        let title = self.annotations.get(TITLE).filter(|title| is_relative(title)).cloned();
        title.or_else(|| {
            let unnamed = UNNAMED_MODELS.iter().find(|(media_type, _)| *media_type == self.media_type);
            unnamed.map(|(_, name)| (*name).to_owned())
        })
    }
}

/// Gets the token that a registry gives to anyone who may pull a repository.
fn anonymous_token(
    transport: &Transport,
    response: &Response<Body>,
    repository: &str,
) -> Result<Option<String>> {
    let header = response.headers().get("www-authenticate").and_then(|value| value.to_str().ok());
    let Some((realm, service)) = header.and_then(challenge) else { return Ok(None) };
    let scope = escape_path(&format!("repository:{repository}:pull")).replace('/', "%2F");
    let service = service.map_or(String::new(), |service| format!("&service={}", escape_path(&service)));
    let separator = if realm.contains('?') { '&' } else { '?' };
    let url = format!("{realm}{separator}scope={scope}{service}");
    let bytes = transport.get_bytes(&GetRequest::new(&url), MAX_TOKEN_BYTES)?;
    let answer: TokenAnswer = serde_json::from_slice(&bytes)
        .map_err(|error| Error::corrupt(&realm, format!("not a token of a registry: {error}")))?;
    Ok(answer.token.or(answer.access_token).filter(|token| token.bytes().all(|c| c.is_ascii_graphic())))
}

/// Returns the realm and the service of `Bearer realm="…",service="…"`.
fn challenge(header: &str) -> Option<(String, Option<String>)> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let value = |name: &str| {
        let at = rest.find(&format!("{name}=\""))? + name.len() + 2;
        rest[at..].split('"').next().map(str::to_owned)
    };
    Some((value("realm")?, value("service")))
}

/// Reads a manifest, and a challenge.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_untrusted(bytes: &[u8]) {
    let _ = (model_layers(bytes), challenge(&String::from_utf8_lossy(bytes)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let header = "Bearer realm=\"https://auth.example/token\",service=\"registry.example\",scope=\"a\"";
        let parsed = challenge(header).unwrap();
        assert_eq!(parsed, ("https://auth.example/token".to_owned(), Some("registry.example".to_owned())));
        assert_eq!(challenge("Basic realm=\"a\""), None);
        assert_eq!(challenge("Bearer"), None);
        assert_eq!(challenge("bearer realm=\"a"), Some(("a".to_owned(), None)));
    }
}
