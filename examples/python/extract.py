"""Facts from a text, as JSON that matches a schema: python extract.py [MODEL] < text"""

import json
import sys

import siskin

SCHEMA = {
    "type": "object",
    "properties": {
        "people": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 5},
        "places": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 5},
    },
    "required": ["people", "places"],
    "additionalProperties": False,
}

model = siskin.load(sys.argv[1] if len(sys.argv) > 1 else "smollm2")
prompt = f"List the people and the places in this text:\n\n{sys.stdin.read()}"
reply = model.chat(prompt, json_schema=SCHEMA, temperature=0.0)
print(json.dumps(json.loads(reply.text), indent=2))
