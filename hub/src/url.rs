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
    match url.split_once("://").map(|(scheme, _)| scheme) {
        Some("https") => Ok(()),
        Some("http") if is_this_machine(host) => Ok(()),
        _ => {
            let origin = origin(url).unwrap_or_default();
            let message = format!("`{origin}` is not HTTPS; plain HTTP is accepted only for localhost");
            Err(Error::argument("url", message))
        }
    }
}

/// Fails like [`check_scheme`] for the URL of an environment variable, which the error names.
pub(crate) fn check_setting(variable: &str, url: &str) -> Result<()> {
    check_scheme(url).map_err(|error| Error::argument(variable, error.message().to_owned()))
}

/// Returns whether a host, and a port if it has one, is this machine.
pub(crate) fn is_loopback(authority: &str) -> bool {
    host(&format!("http://{authority}")).is_some_and(is_this_machine)
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
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

/// Returns a part of a path without escapes; `None` if that is not UTF-8, or an escape is not complete.
pub(crate) fn unescape(part: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
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
        assert_eq!(unescape("a%20b/%C3%BC.gguf").as_deref(), Some("a b/ü.gguf"));
        assert!(["%", "%2", "%zz", "%FF", "a%"].iter().all(|part| unescape(part).is_none()));
        assert!(
            is_loopback("localhost:5000") && is_loopback("127.0.0.1") && !is_loopback("localhost.example")
        );
    }
}
