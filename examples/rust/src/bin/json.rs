//! A response that is JSON and matches a schema: `json MODEL PROMPT`.

use siskin::constraint::StructuredOutput;

const SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "mood": {"enum": ["happy", "sad", "neutral"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 120}
    },
    "required": ["name", "mood", "age"],
    "additionalProperties": false
}"#;

fn main() -> siskin::Result<()> {
    let arguments = siskin_examples::arguments(2, "json MODEL PROMPT");
    let model = siskin_examples::open(&arguments[0])?;
    let mut session = model.session(Default::default())?;
    session.set_structured_output(Some(&StructuredOutput::JsonSchema(SCHEMA.to_owned())))?;
    for chunk in session.ask(&arguments[1])? {
        print!("{}", chunk?);
    }
    println!();
    Ok(())
}
