"""JSON Schema's meaning, written from its specification, for the keywords constrained decoding knows."""

import math


def same(a, b):
    """Equality of JSON values: 1 is 1.0, and true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) in (int, float) and type(b) in (int, float) and a == b or \
        type(a) is type(b) and a == b


def is_type(value, name):
    if name == "integer":
        return not isinstance(value, bool) and (
            isinstance(value, int) or isinstance(value, float) and math.floor(value) == value)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    kinds = {"string": str, "boolean": bool, "null": type(None), "object": dict, "array": list}
    return isinstance(value, kinds[name])


def conforms(value, schema, root=None):
    """Whether `value` is an instance of `schema`; `root` is the document $ref points into."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        target = root
        for part in schema["$ref"].split("/")[1:]:
            target = target[int(part) if isinstance(target, list) else part]
        if not conforms(value, target, root):
            return False
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(is_type(value, name) for name in names):
            return False
    if "enum" in schema and not any(same(value, one) for one in schema["enum"]):
        return False
    if "const" in schema and not same(value, schema["const"]):
        return False
    if "anyOf" in schema and not any(conforms(value, one, root) for one in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(conforms(value, one, root) for one in schema["oneOf"]) != 1:
        return False
    if isinstance(value, str):
        return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf)
    if is_type(value, "number"):
        return (schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
                and value > schema.get("exclusiveMinimum", -math.inf)
                and value < schema.get("exclusiveMaximum", math.inf))
    if isinstance(value, list):
        return (schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf)
                and all(conforms(item, schema.get("items", True), root) for item in value))
    if isinstance(value, dict):
        named = schema.get("properties", {})
        return all(key in value for key in schema.get("required", [])) and all(
            conforms(item, named.get(key, schema.get("additionalProperties", True)), root)
            for key, item in value.items())
    return True
