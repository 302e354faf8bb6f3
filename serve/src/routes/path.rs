//! Paths with arguments.

/// Returns the arguments in `path`, still encoded, if it matches `template`: what stands for the names in braces. A name
/// stands for one segment; at the end of the template, for all that are left.
pub(super) fn arguments<'p>(template: &str, path: &'p str) -> Option<Vec<&'p str>> {
    let mut arguments = Vec::new();
    let mut left = path.strip_prefix('/')?;
    let mut names = template.strip_prefix('/')?.split('/').peekable();
    while let Some(name) = names.next() {
        let (segment, rest) = match names.peek() {
            Some(_) => left.split_once('/')?,
            None => (left, ""),
        };
        if name.starts_with('{') {
            if segment.is_empty() {
                return None;
            }
            arguments.push(segment);
        } else if name != segment {
            return None;
        }
        left = rest;
    }
    Some(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_stand_for_segments() {
        assert_eq!(arguments("/a/b", "/a/b").unwrap(), [""; 0]);
        assert_eq!(arguments("/", "/").unwrap(), [""; 0]);
        assert_eq!(arguments("/a/{x}", "/a/b/c").unwrap(), ["b/c"]);
        assert_eq!(arguments("/a/{x}/c/{y}", "/a/1/c/2").unwrap(), ["1", "2"]);
        for other in ["/a", "/a/", "/a//c/2", "/a/1/c", "/a/1/d/2", "a/1/c/2"] {
            assert!(arguments("/a/{x}/c/{y}", other).is_none(), "{other}");
        }
    }
}
