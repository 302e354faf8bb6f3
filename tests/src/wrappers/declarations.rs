//! Parser of the C header: functions and enums with their documentation.

/// A function of the header.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) docs: String,
    pub(super) parameters: Vec<Parameter>,
}

/// A parameter: its C type without spaces before `*`, such as `const char*`, and its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parameter {
    pub(super) kind: String,
    pub(super) name: String,
}

/// A member of an enum.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) docs: String,
    pub(super) value: u32,
}

/// An enum of the header.
pub(super) struct Enum {
    pub(super) name: String,
    pub(super) docs: String,
    pub(super) members: Vec<Member>,
}

/// What the header declares, in its order.
pub(super) struct Declarations {
    pub(super) functions: Vec<Function>,
    pub(super) enums: Vec<Enum>,
}

impl Declarations {
    /// Parses the text of the header.
    pub(super) fn parse(header: &str) -> Result<Self, String> {
        let mut found = Self { functions: Vec::new(), enums: Vec::new() };
        let (mut docs, mut code) = (Vec::new(), String::new());
        for line in header.lines().map(str::trim) {
            if let Some(doc) = line.strip_prefix("///") {
                // Members have documentation too: it is parsed with the enum.
                if code.is_empty() {
                    docs.push(doc.trim())
                } else {
                    code.push_str(&format!("{line}\n"))
                }
                continue;
            }
            if line.is_empty() || line.starts_with("//") || line.starts_with('#') {
                docs.clear();
                continue;
            }
            code.push_str(line);
            code.push('\n');
            let is_block = code.contains('{');
            if line.ends_with(';') && (!is_block || line.starts_with('}')) {
                found.add(&std::mem::take(&mut code), docs.join(" "))?;
                docs.clear();
            }
            // `extern "C" {` and the brace that closes it.
            if code.starts_with("extern") || code.trim() == "}" {
                code.clear();
            }
        }
        Ok(found)
    }

    /// Returns an enum by its name.
    pub(super) fn find_enum(&self, name: &str) -> Result<&Enum, String> {
        self.enums.iter().find(|one| one.name == name).ok_or_else(|| format!("the header has no enum {name}"))
    }

    fn add(&mut self, code: &str, docs: String) -> Result<(), String> {
        if let Some(rest) = code.strip_prefix("typedef enum ") {
            let (name, body) = rest.split_once(" {").ok_or_else(|| format!("not an enum: {code}"))?;
            self.enums.push(Enum { name: name.to_owned(), docs, members: members(body)? });
        } else if !code.starts_with("typedef") {
            self.functions.push(function(code, docs)?);
        }
        Ok(())
    }
}

fn members(body: &str) -> Result<Vec<Member>, String> {
    let (mut members, mut docs) = (Vec::new(), Vec::new());
    for line in body.lines() {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim());
        } else if let Some((name, value)) = line.trim_end_matches(',').split_once(" = ") {
            let value = value.parse().map_err(|error| format!("{line}: {error}"))?;
            members.push(Member { name: name.to_owned(), docs: docs.join(" "), value });
            docs.clear();
        }
    }
    Ok(members)
}

fn function(code: &str, docs: String) -> Result<Function, String> {
    let code = code.replace('\n', " ");
    let unknown = || format!("not the declaration of a function: {code}");
    let (before, rest) = code.split_once('(').ok_or_else(unknown)?;
    let name = before.rsplit([' ', '*']).next().unwrap_or_default().to_owned();
    let rest = rest.rsplit_once(')').ok_or_else(unknown)?.0;
    let parameters = rest.split(',').map(str::trim).filter(|one| !one.is_empty() && *one != "void");
    let parameters = parameters.map(|one| {
        let at = one.rfind([' ', '*']).ok_or_else(|| format!("{name}: unknown parameter {one}"))? + 1;
        let kind = one[..at].trim().replace(" *", "*");
        Ok(Parameter { kind, name: one[at..].to_owned() })
    });
    let parameters = parameters.collect::<Result<_, String>>()?;
    Ok(Function { name, docs, parameters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_parsed() {
        let header = "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n/// A.\ntypedef enum siskin_a {\n    /// X.\n    \
            SISKIN_A_X = 1,\n} siskin_a;\n\n/// Sets\n/// it.\nSISKIN_NODISCARD\nsiskin_error *siskin_b_set(siskin_b *b,\n   \
            const char *text, size_t length);\n\n#ifdef __cplusplus\n}\n#endif\n";
        let found = Declarations::parse(header).unwrap();
        let member = &found.find_enum("siskin_a").unwrap().members[0];
        assert_eq!((member.name.as_str(), member.docs.as_str(), member.value), ("SISKIN_A_X", "X.", 1));
        let function = &found.functions[0];
        assert_eq!((function.name.as_str(), function.docs.as_str()), ("siskin_b_set", "Sets it."));
        let parameters: Vec<_> =
            function.parameters.iter().map(|one| (one.kind.as_str(), one.name.as_str())).collect();
        assert_eq!(parameters, [("siskin_b*", "b"), ("const char*", "text"), ("size_t", "length")]);
        assert_eq!((found.functions.len(), found.enums.len()), (1, 1));
    }
}
