//! The description of the routes, in the format of OpenAPI 3.1.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::table::{Access, BodyKind, HttpRoute, ROUTES, ResponseKind};
use crate::error::ErrorFormat;

/// The schemas that routes name.
const SCHEMAS: &str = include_str!("schemas.json");

/// Returns the description of all routes.
pub(super) fn description() -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES {
        paths.entry(route.path).or_default().insert(route.method.name().to_lowercase(), operation(route));
    }
    // Checked by a test.
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Siskin",
            "description": "Models on this machine.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn operation(route: &HttpRoute) -> Value {
    let query =
        route.query.iter().map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}));
    let parameters: Vec<Value> = route
        .path
        .split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .chain(query)
        .collect();
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": parameters,
        "responses": responses(route),
    });
    match route.access {
        Access::Public => {}
        // Servers without keys need none.
        Access::Client => operation["security"] = json!([{}, {"key": []}]),
        Access::Admin => operation["security"] = json!([{"key": []}]),
    }
    let body = match route.body {
        BodyKind::None => None,
        BodyKind::Json(schema) => Some(json!({"application/json": {"schema": reference(schema)}})),
        BodyKind::JsonOrTensors(schema) => Some(json_or_tensors(schema)),
        BodyKind::Form(schema) => Some(json!({"multipart/form-data": {"schema": reference(schema)}})),
    };
    if let Some(content) = body {
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

fn responses(route: &HttpRoute) -> Value {
    let error = match route.error_format {
        ErrorFormat::OpenAi => "Error",
        ErrorFormat::Message => "ErrorMessage",
    };
    let error = |description| json!({"description": description, "content": {"application/json": {"schema": reference(error)}}});
    let content = match route.response {
        ResponseKind::NotImplemented => {
            return json!({"501": error("Not supported"), "default": error("An error")});
        }
        ResponseKind::Json(schema) => json!({"application/json": {"schema": reference(schema)}}),
        ResponseKind::JsonOrEvents(whole, chunk) => json!({
            "application/json": {"schema": reference(whole)},
            "text/event-stream": {"schema": events(chunk)},
        }),
        ResponseKind::Events(schema) => json!({"text/event-stream": {"schema": events(schema)}}),
        ResponseKind::JsonOrTensors(schema) => json_or_tensors(schema),
        ResponseKind::JsonOrLines(whole, line) => json!({
            "application/json": {"schema": reference(whole)},
            "application/x-ndjson": {"schema": reference(line)},
        }),
        ResponseKind::JsonOrText(schema) => json!({
            "application/json": {"schema": reference(schema)},
            "text/plain": {"schema": {"type": "string"}},
        }),
        ResponseKind::Text(media_type) => json!({media_type: {"schema": {"type": "string"}}}),
    };
    json!({"200": {"description": "Success", "content": content}, "default": error("An error")})
}

fn events(schema: &str) -> Value {
    json!({"type": "string", "description": format!("Events whose data are of the schema {schema}")})
}

fn json_or_tensors(schema: &str) -> Value {
    let description =
        format!("JSON of the schema {schema}, whose length is in a header, and the bytes of tensors");
    json!({
        "application/json": {"schema": reference(schema)},
        "application/octet-stream": {
            "schema": {"type": "string", "format": "binary", "description": description},
        },
    })
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// `GET /v1/models/{model}` is `get_v1_models_model`.
fn operation_id(route: &HttpRoute) -> String {
    let path = route.path.replace(['{', '}'], "").replace(['/', '.', '-'], "_");
    format!("{}{path}", route.method.name().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_schemas_are_there_and_used() {
        let schemas: Map<String, Value> = serde_json::from_str(SCHEMAS).unwrap();
        let description = description();
        let text = description.to_string();
        for name in schemas.keys() {
            // Those of events are only named.
            let is_used =
                ["schemas/", "of the schema "].iter().any(|start| text.contains(&format!("{start}{name}\"")));
            assert!(is_used, "{name} is not used");
        }
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name} is missing");
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let mut ids: Vec<_> = ROUTES.iter().map(operation_id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), ROUTES.len());
    }
}
