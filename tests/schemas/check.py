"""Checks that structured output is valid: JSON drawn from the masks of many schemas, by the package `jsonschema`.

    python check.py SCHEMA_OUTPUTS MODEL SUITE [COUNT]

SUITE is the folder of JSON Schema's test suite. Schemas that are refused must say why. COUNT limits the number of schemas.
"""

import collections
import json
import pathlib
import random
import re
import subprocess
import sys

import jsonschema

TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]


def of_suite(folder):
    """Returns the schemas of the suite; references to other documents are refused."""
    schemas = []
    for draft in ["draft2020-12", "draft2019-09", "draft7", "draft6", "draft4"]:
        for path in sorted((folder / draft).rglob("*.json")):
            schemas += [group["schema"] for group in json.loads(path.read_text())]
    return schemas


def made_up(source, depth=0):
    """Returns a random schema, of the kinds that users write."""
    kind = source.choice(TYPES if depth < 4 else TYPES[:5])
    schema = {"type": kind}
    if kind == "string":
        match source.randrange(5):
            case 0:
                schema |= {"minLength": source.randrange(4), "maxLength": 4 + source.randrange(30)}
            case 1:
                schema |= {"pattern": source.choice(["^[A-Z]{2,4}-[0-9]+$", "^(a|b)*c$", "^\\S+$", "x"])}
            case 2:
                formats = ["date", "time", "date-time", "uuid", "email", "ipv4", "hostname", "uri", "duration"]
                schema |= {"format": source.choice(formats)}
            case 3:
                return {"enum": source.sample(["red", "green", 'a "quoted" one', "ü", "", "\\", "\n"], 3)}
    elif kind in ["integer", "number"]:
        low = source.choice([-1000, -1, 0, 0.5 if kind == "number" else 2, 17])
        schema |= source.choice([{}, {"minimum": low}, {"exclusiveMinimum": low, "maximum": low + 250}])
        if source.randrange(4) == 0:
            schema |= {"multipleOf": source.choice([2, 5, 10])}
    elif kind == "array":
        schema["items"] = made_up(source, depth + 1)
        schema["maxItems"] = source.randrange(1, 4)
        if source.randrange(3) == 0:
            schema |= {"prefixItems": [made_up(source, depth + 1)], "minItems": 1}
    elif kind == "object":
        names = source.sample(["name", "id", "größe", 'with "quotes"', "a b", "$ref_", "x-y"], source.randrange(1, 5))
        schema["properties"] = {name: made_up(source, depth + 1) for name in names}
        schema["required"] = [name for name in names if source.randrange(2)]
        schema["additionalProperties"] = source.choice([False, False, {"type": "integer"}])
    if depth and source.randrange(12) == 0:
        return {"anyOf": [schema, made_up(source, depth + 1)]}
    if depth == 0 and source.randrange(6) == 0:
        tree = {"type": "object", "properties": {"value": schema, "next": {"$ref": "#/$defs/tree"}}}
        tree |= {"required": ["value"], "additionalProperties": False}
        return {"$ref": "#/$defs/tree", "$defs": {"tree": tree}}
    return schema


def default_draft(schema):
    """Returns the draft of which the compiler reads a schema that does not say it."""
    return jsonschema.Draft4Validator if has_flags(schema) else jsonschema.Draft202012Validator


def has_flags(schema):
    """Returns whether `exclusiveMaximum` or `exclusiveMinimum` is a flag, as in draft 4 and OpenAPI 3.0."""
    if isinstance(schema, dict):
        flags = (schema.get(f"exclusive{bound}") for bound in ["Maximum", "Minimum"])
        return any(isinstance(flag, bool) for flag in flags) or any(map(has_flags, schema.values()))
    return isinstance(schema, list) and any(map(has_flags, schema))


def main():
    outputs, model, suite = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else None
    source = random.Random(7)
    schemas = of_suite(pathlib.Path(suite))
    schemas += [made_up(source) for _ in range(1000)]
    if count:
        schemas = source.sample(schemas, count)
    lines = "".join(json.dumps(schema) + "\n" for schema in schemas)
    command = [outputs, model, "2"]
    found = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout
    results = collections.Counter()
    wrong = []
    for schema, line in zip(schemas, found.rstrip("\n").split("\n"), strict=True):
        result = json.loads(line)
        if error := result.get("error"):
            results["refused"] += 1
            if not error.startswith("json_schema"):
                wrong.append((schema, error))
            continue
        validators = jsonschema.validators.validator_for(schema, default_draft(schema))
        for text in result["texts"]:
            if text is None:
                results["longer than the limit"] += 1
                continue
            try:
                validators(schema).validate(json.loads(text))
                results["valid"] += 1
            except (re.error, AttributeError):
                # Python has no Unicode properties, and its validator fails where an older draft has a list of schemas.
                results["which the validator cannot check"] += 1
            except (jsonschema.ValidationError, json.JSONDecodeError) as error:
                wrong.append((schema, f"{text!r}: {error.args[0]}"))
    print(f"{len(schemas)} schemas: {dict(results)}, {len(wrong)} wrong")
    for schema, message in wrong[:20]:
        print(f"{json.dumps(schema)[:300]}\n    {message[:300]}")
    # A check that refuses everything shows nothing.
    sys.exit(bool(wrong) or results["valid"] < len(schemas))


if __name__ == "__main__":
    main()
