//! The parts of URLs that downloads need.

use siskin_format::{Error, Result};

/// Returns the scheme and host of a URL, with the port if it is given: what credentials are for.
pub(crate) fn origin(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    (!host.is_empty()).then(|| &url[..scheme.len() + 3 + host.len()])
}

/// Returns the host of a URL without its port.
fn host(url: &str) -> Option<&str> {
    let authority = origin(url)?.split_once("://")?.1;
    match authority.strip_prefix('[') {
        Some(address) => address.split_once(']').map(|(address, _)| address),
        None => Some(authority.split(':').next().unwrap_or(authority)),
    }
}

/// Fails unless the bytes of a URL can be trusted to come from its host: by HTTPS, or from this machine.
pub(crate) fn check_scheme(url: &str) -> Result<()> {
    let host = host(url).ok_or_else(|| Error::argument("url", format!("`{url}` is not a URL")))?;
    // What is before an `@` is not the host, whatever it looks like.
    if origin(url).is_some_and(|origin| origin.contains('@')) {
        return Err(Error::argument("url", "user names and passwords in URLs are not supported"));
    }
    let is_loopback =
        host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    match url.split_once("://").map(|(scheme, _)| scheme) {
        Some("https") => Ok(()),
        Some("http") if is_loopback => Ok(()),
        _ => Err(Error::argument("url", format!("`{}` is not HTTPS", origin(url).unwrap_or_default()))),
    }
}

/// Returns the URL that a reference, such as that of a redirect, means on a page.
pub(crate) fn join(page: &str, reference: &str) -> Result<String> {
    let page_origin = origin(page).ok_or_else(|| Error::argument("url", format!("`{page}` is not a URL")))?;
    if reference.contains("://") {
        return Ok(reference.to_owned());
    }
    if let Some(rest) = reference.strip_prefix("//") {
        let scheme = page.split_once("://").map_or("https", |(scheme, _)| scheme);
        return Ok(format!("{scheme}://{rest}"));
    }
    let path = page[page_origin.len()..].split(['?', '#']).next().unwrap_or_default();
    if reference.starts_with('/') {
        return Ok(format!("{page_origin}{reference}"));
    }
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut segments: Vec<&str> = folder.split('/').filter(|segment| !segment.is_empty()).collect();
    let mut rest = reference;
    loop {
        rest = match (rest.strip_prefix("../"), rest.strip_prefix("./")) {
            (Some(after), _) => {
                segments.pop();
                after
            }
            (_, Some(after)) => after,
            _ => break,
        };
    }
    let folder: String = segments.iter().map(|segment| format!("/{segment}")).collect();
    Ok(format!("{page_origin}{folder}/{rest}"))
}

/// Returns a path with what is not allowed in URLs escaped, without its slashes.
pub(crate) fn escape_path(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved() {
        // By Python: urllib.parse.urljoin.
        for (page, reference, url) in [
            ("https://a.b/c/d?e", "https://x/y", "https://x/y"),
            ("https://a.b/c/d?e", "//x/y", "https://x/y"),
            ("https://a.b/c/d?e=/f", "/y?z", "https://a.b/y?z"),
            (
                "https://a.b/simple/pkg/",
                "../../packages/f.whl#sha256=0",
                "https://a.b/packages/f.whl#sha256=0",
            ),
            ("https://a.b:80/c/d", "e", "https://a.b:80/c/e"),
            ("https://a.b", "e", "https://a.b/e"),
            ("https://a.b/c/", "./e", "https://a.b/c/e"),
        ] {
            assert_eq!(join(page, reference).unwrap(), url);
        }
    }

    #[test]
    fn only_https_and_this_machine_are_trusted() {
        for url in ["https://a.b/c", "http://127.0.0.1:80/c", "http://localhost/c", "http://[::1]:1/"] {
            check_scheme(url).unwrap();
        }
        for url in [
            "http://a.b/c",
            "ftp://a.b",
            "http://127.0.0.1.evil.example/",
            "http://localhost@evil.example/",
            "https://user:password@a.b/",
            "https:///c",
            "a/b",
            "file:///etc/passwd",
            "http://[::1",
        ] {
            assert!(check_scheme(url).is_err(), "{url}");
        }
        assert_eq!(origin("https://a.b:1/c?d"), Some("https://a.b:1"));
        assert_eq!(escape_path("a b/ü.gguf"), "a%20b/%C3%BC.gguf");
    }
}
