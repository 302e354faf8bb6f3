//! Model files of web servers.

use siskin_format::{Error, Result};
use ureq::Body;
use ureq::http::Response;

use super::FoundModel;
use crate::download::{RemoteContent, RemoteFile};
use crate::name::{RemoteModel, is_model_file, is_relative};
use crate::pick::PickedFiles;
use crate::transport::{GetRequest, Transport, refused};
use crate::url::unescape;

/// Finds the file of a URL.
pub(crate) fn find(transport: &Transport, url: &str) -> Result<FoundModel> {
    let file = file_name(url)?;
    // Some servers do not answer HEAD.
    let response = transport.get(&GetRequest { range: Some(0..1), ..GetRequest::new(url) })?;
    let bytes = match response.status().as_u16() {
        206 => header(&response, "content-range").and_then(|range| range.rsplit_once('/')?.1.parse().ok()),
        200 => header(&response, "content-length").and_then(|length| length.parse().ok()),
        _ => return Err(refused(url, &response)),
    };
    let bytes =
        bytes.ok_or_else(|| Error::unsupported(url, "the server does not say how long the file is"))?;
    // Weak tags are those of files that only mean the same.
    let strong = header(&response, "etag").filter(|tag| !tag.starts_with("W/"));
    let content = RemoteContent::Tag(strong.map(str::to_owned));
    let remote = RemoteFile { url: url.to_owned(), token: None, bytes, content };
    Ok(FoundModel {
        pinned: RemoteModel::Https { url: url.to_owned() },
        version: None,
        picked: PickedFiles::File(vec![file.clone()]),
        files: vec![(file, remote)],
    })
}

/// Returns the name of the file of a URL.
fn file_name(url: &str) -> Result<String> {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().and_then(unescape).filter(|name| {
        is_model_file(name) && is_relative(name) && !name.contains('/') && !name.chars().any(char::is_control)
    });
    name.ok_or_else(|| {
        Error::argument(
            url,
            "the path must end with the name of a .siskin, .gguf, .onnx or .safetensors file",
        )
    })
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_names_of_their_urls() {
        for (url, name) in [
            ("https://a.b/c/d.gguf?token=1", Some("d.gguf")),
            ("https://a.b/d%20e.siskin", Some("d e.siskin")),
            ("https://a.b/c%2Fd.gguf", None),
            ("https://a.b/%2e%2e", None),
            ("https://a.b/c.zip", None),
            ("https://a.b/", None),
            ("https://a.b/c%0A.gguf", None),
        ] {
            assert_eq!(file_name(url).ok().as_deref(), name, "{url}");
        }
    }
}
