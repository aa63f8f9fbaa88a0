"""Constrained decoding's grammars against JSON Schema's meaning: what they take, what they make."""

import json
import random
import subprocess

import pytest

import k3
from json_schema_reference import conforms

PROBE = k3.BIN.parent / "fixtures" / "grammar_probe"
OPEN, CLOSE, SEP, END = 256, 257, 258, 259

SCHEMAS = {
    "any": {},
    "types": {"type": ["string", "integer", "null"]},
    "string": {"type": "string", "minLength": 2, "maxLength": 4},
    "at_least": {"type": "string", "minLength": 3},
    "integer": {"type": "integer", "minimum": -12, "maximum": 345},
    "positive": {"type": "integer", "exclusiveMinimum": 0},
    "below": {"type": "integer", "maximum": 99.5},
    "number": {"type": "number", "minimum": -1, "exclusiveMaximum": 20},
    "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "negative": {"type": "number", "exclusiveMaximum": 0},
    "enum": {"enum": ["red", "reddish", "", "\u00e4\"\\", 1, 2.5, None, True, [1, 2], {"a": 1}]},
    "const": {"const": {"k": ["v"]}},
    "whole_enum": {"type": "integer", "enum": [1, 2, "x"]},
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    "pairs": {"type": "array", "items": {"type": "array", "items": {"type": "null"},
                                         "minItems": 2, "maxItems": 2}},
    "none": {"type": "array", "items": False},
    "object": {"type": "object", "required": ["b"], "additionalProperties": False, "properties": {
        "a": {"type": "string"}, "b": {"type": "integer"}, "ab": {"type": "boolean"}}},
    "optional": {"type": "object", "additionalProperties": False, "properties": {
        "x": {"type": "null"}, "y": {"type": "null"}, "z": {"type": "null"}}},
    "more": {"type": "object", "required": ["count", "id"], "properties": {
        "id": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    "map": {"type": "object", "additionalProperties": {"type": "array",
                                                       "items": {"type": "number"}}},
    "any_of": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["n"], "properties": {
        "n": {"type": "integer"}}, "additionalProperties": False}]},
    "one_of": {"oneOf": [
        {"type": "object", "required": ["kind", "r"], "additionalProperties": False, "properties": {
            "kind": {"const": "circle"}, "r": {"type": "number"}}},
        {"type": "object", "required": ["kind", "w"], "additionalProperties": False, "properties": {
            "kind": {"const": "square"}, "w": {"type": "integer"}}}]},
    "tree": {"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "required": ["value", "children"], "additionalProperties": False,
        "properties": {"value": {"type": "integer"},
                       "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}},
    "list": {"type": "object", "required": ["next"], "additionalProperties": False, "properties": {
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
    "annotated": {"title": "T", "description": "d", "default": 1, "examples": [1],
                  "$schema": "x", "$id": "y", "type": "integer"},
}


class Probe:
    def __init__(self):
        self.process = subprocess.Popen([PROBE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def probe():
    probe = Probe()
    yield probe
    probe.process.stdin.close()
    assert probe.process.wait() == 0


def value_like(random, schema, root, wrong):
    """A value that mostly conforms; each part is of another kind with probability `wrong`."""
    if schema is True or schema == {} or random.random() < wrong:
        return random.choice([None, True, 7, -3, 100, 0.25, -1.5, "", "red", "kurz", "l\u00e4nger\U0001f600",
                              [], [1], [None, None], {}, {"a": "x"}, {"n": 1}, {"value": 1}])
    if schema is False:
        return None
    if "$ref" in schema:
        target = root
        for part in schema["$ref"].split("/")[1:]:
            target = target[part]
        return value_like(random, target, root, min(1, wrong + 0.1))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return value_like(random, random.choice(schema[keyword]), root, wrong)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    name = schema.get("type", "object")
    name = random.choice(name) if isinstance(name, list) else name
    if name == "string":
        return "".join(random.choice("ab\"\\\n\u00e9\u4e16\U0001f600") for _ in range(random.randrange(6)))
    if name == "integer":
        return random.randrange(-400, 400)
    if name == "number":
        return random.choice([random.randrange(-30, 30), random.randrange(-3000, 3000) / 100,
                              random.randrange(-15, 15) / 10])
    if name == "array":
        return [value_like(random, schema.get("items", True), root, wrong)
                for _ in range(random.randrange(4))]
    if name == "object":
        named = dict(schema.get("properties", {}))
        for key in schema.get("required", []):
            named.setdefault(key, schema.get("additionalProperties", True))
        value = {key: value_like(random, part, root, wrong) for key, part in named.items()
                 if random.random() < (0.95 if key in schema.get("required", []) else 0.5)}
        if random.random() < (0.3 if schema.get("additionalProperties", True) else wrong):
            for key in random.sample(["aa", "c", "idx", "i"], 2):
                value[key] = value_like(random, schema.get("additionalProperties", True), root, wrong)
        return value
    return {"boolean": random.random() < 0.5, "null": None}[name]


def spelled(random, value):
    return json.dumps(value, ensure_ascii=False, **random.choice(
        [{"separators": (",", ":")}, {}, {"indent": 2, "separators": (",", ": ")}]))


@pytest.mark.parametrize("name", SCHEMAS)
def test_documents_are_taken_exactly(probe, name):
    schema = SCHEMAS[name]
    chance = random.Random(name)
    seen = {True: 0, False: 0}
    for _ in range(300):
        value = value_like(chance, schema, schema, chance.choice([0, 0.1, 0.5]))
        # Literals have one spelling, without spaces.
        text = (json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                if name in ("enum", "const") else spelled(chance, value))
        expected = conforms(value, schema)
        seen[expected] += 1
        answer = probe.ask(schema=schema, symbols=[*text.encode(), END])
        assert answer == {"accepted": expected}, text
        assert not probe.ask(schema=schema, symbols=[*text.encode()[:-1], END]).get("accepted") \
            or name in ("any", "types", "integer", "positive", "below", "number", "share", "negative",
                        "enum", "any_of", "whole_enum", "annotated"), text
    assert seen[True] >= 10 and (seen[False] >= 10 or name == "any")


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_made_conforms(probe, name):
    schema = SCHEMAS[name]
    for seed in range(60):
        symbols = probe.ask(schema=schema, walk=seed)["symbols"]
        assert symbols[-1] == END
        text = bytes(symbols[:-1]).decode()
        assert conforms(json.loads(text), schema), text


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_made_document_is_taken_in_any_spelling(probe, name):
    """What a walk makes is taken again when Python has read and written it."""
    schema = SCHEMAS[name]
    for seed in range(20):
        symbols = probe.ask(schema=schema, walk=1000 + seed)["symbols"]
        assert probe.ask(schema=schema, symbols=symbols) == {"accepted": True}


@pytest.mark.parametrize("schema,named", [
    ({"type": "string", "pattern": "a"}, 'schema at #: keyword "pattern" is not supported'),
    ({"properties": {"a/b": {"format": "date"}}}, 'at #/properties/a~1b: keyword "format"'),
    ({"items": {"allOf": []}}, 'at #/items: keyword "allOf"'),
    ({"anyOf": [{}, {"not": {}}]}, 'at #/anyOf/1: keyword "not"'),
    ({"anyOf": [{}], "type": "string"}, 'keyword "type" beside "anyOf"'),
    ({"$ref": "#/$defs/x"}, '"$ref" #/$defs/x is not a place'),
    ({"$ref": "https://example.com/x"}, "is not a place in this schema"),
    ({"type": "text"}, 'type "text" is unknown'),
    ({"type": "string", "maxLength": -1}, '"maxLength" is -1'),
    ({"type": "array", "maxItems": 1e9}, '"maxItems" is 1000000000.0'),
    ({"type": "number", "minimum": 0.5}, '"minimum" is 0.5'),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "schemas 0 and 1 may both hold"),
    ({"type": "array", "items": {"multipleOf": 3}}, 'keyword "multipleOf"'),
    ({"enum": []}, "nothing can conform"),
    (False, "nothing can conform"),
    ({"$ref": "#"}, "nothing can conform"),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, "nothing can conform"),
    ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "nothing can"),
    ({"type": "array", "items": {"type": "array", "items": {"type": "string", "maxLength": 65536},
                                 "maxItems": 65536, "minItems": 65536},
      "maxItems": 65536, "minItems": 65536}, None),
])
def test_what_is_refused(probe, schema, named):
    answer = probe.ask(schema=schema, walk=1) if named else probe.ask(schema=schema, symbols=[91])
    assert (named in answer["error"]) if named else answer == {"accepted": False}, answer


def test_a_large_schema_is_refused(probe):
    schema = {"properties": {f"p{i}": {"type": "string", "maxLength": 65536} for i in range(20)}}
    assert "too large" in probe.ask(schema=schema, walk=1)["error"]


def test_what_would_take_too_long_is_refused(probe):
    many = {"anyOf": [{"$ref": "#/$defs/x"}] * 64}
    schema = {"$ref": "#/$defs/x", "$defs": {"x": many}}
    assert "nothing can conform" in probe.ask(schema=schema, walk=1)["error"]
    tool = {"name": "f", "parameters": {"properties": {"p": {"$ref": "#/$defs/x"}},
                                        "$defs": {"x": many}}}
    assert "tool f: schema" in probe.ask(reply={"tools": [tool]}, walk=1)["error"]
    one_of = {"oneOf": [{"$ref": "#/$defs/x"}] * 64, "$defs": {"x": many}}
    assert "may both hold" in probe.ask(schema=one_of, walk=1)["error"]
    deep = None
    for _ in range(300):
        deep = [deep]
    assert "levels deep" in probe.ask(schema={"const": deep}, walk=1)["error"]


def test_nesting_ends(probe):
    nested = [*b"[" * 400, *b"]" * 400, END]
    assert probe.ask(schema={}, symbols=nested) == {"accepted": False}
    assert probe.ask(schema={}, symbols=[*b"[" * 100, *b"]" * 100, END]) == {"accepted": True}


TOOLS = [
    {"name": "weather", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "minLength": 1}, "days": {"type": "integer", "minimum": 1,
                                                                "maximum": 14},
            "unit": {"enum": ["C", "F"]}, "at": {"anyOf": [{"type": "null"}, {
                "type": "object", "required": ["x"], "properties": {"x": {"type": "number"}},
                "additionalProperties": False}]}}}},
    {"name": "say \"&\"", "parameters": {"type": "object", "additionalProperties": {
        "type": ["string", "boolean"]}}},
    {"name": "now"},
]


def read_reply(symbols):
    """(think, response, calls) of a reply; an independent reader of the format."""
    text = "".join({OPEN: "\0O", CLOSE: "\0C", SEP: "\0S", END: "\0E"}.get(symbol) or chr(symbol)
                   for symbol in symbols)
    assert text.endswith("\0Cmessage\0S\0E")
    text = text[:-len("\0Cmessage\0S\0E")]
    utf8 = lambda part: part.encode("latin-1").decode()
    think = None
    if "\0Cthink\0S" in text:
        think, text = text.split("\0Cthink\0S\0Oresponse\0S")
        think = utf8(think)
    response, text = text.split("\0Cresponse\0S")
    calls = []
    if text:
        assert text.startswith("\0Otools\0S") and text.endswith("\0Ccall\0S\0Ctools\0S")
        for call in text[len("\0Otools\0S"):-len("\0Ctools\0S")].split("\0Ccall\0S")[:-1]:
            header, rest = call.split("\0S", 1)
            name = header.removeprefix('\0Ocall tool="').split('"')[0]
            arguments = {}
            for argument in rest.split("\0Cargument\0S")[:-1]:
                head, value = argument.split("\0S")
                key, kind = head.removeprefix('\0Oargument key="').removesuffix('"').split('" type="')
                value = utf8(value)
                parsed = value if kind == "string" else json.loads(value)
                kinds = {str: "string", bool: "boolean", int: "number", float: "number",
                         list: "array", dict: "object", type(None): "null"}
                assert kinds[type(parsed)] == kind
                arguments[utf8(key)] = parsed
            calls.append((utf8(name).replace("&quot;", '"').replace("&amp;", "&"), arguments))
    return think, utf8(response), calls


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("choice", ["required", "auto", "none"])
def test_replies_that_are_made(probe, thinking, choice):
    # Markup that stands for a NUL in the reader's text is no part of what it reads.
    called = set()
    for seed in range(150):
        symbols = probe.ask(reply={"thinking": thinking, "tools": TOOLS, "tool_choice": choice},
                            walk=seed)["symbols"]
        if 0 in symbols:
            continue
        think, _, calls = read_reply(symbols)
        assert (think is not None) == thinking
        assert calls or choice != "required"
        assert not calls or choice != "none"
        for name, arguments in calls:
            schema = {tool["name"]: tool.get("parameters", {}) for tool in TOOLS}[name]
            assert conforms(arguments, schema), arguments
            called.add(name)
    assert len(called) == (0 if choice == "none" else 3)


def test_a_response_format_and_tools(probe):
    schema = SCHEMAS["object"]
    reply = {"response_format": {"type": "json_schema", "schema": schema}, "tools": TOOLS,
             "thinking": True}
    seen = set()
    for seed in range(80):
        symbols = probe.ask(reply=reply, walk=seed)["symbols"]
        if 0 in symbols:
            continue
        _, response, calls = read_reply(symbols)
        seen.add(bool(calls))
        assert response == "" if calls else conforms(json.loads(response), schema)
    assert seen == {True, False}
    reply = {"response_format": {"type": "json_object"}}
    for seed in range(20):
        _, response, calls = read_reply(probe.ask(reply=reply, walk=seed)["symbols"])
        assert isinstance(json.loads(response), dict) and not calls


@pytest.mark.parametrize("reply,named", [
    ([], "is not an object"),
    ({"format": 1}, 'unknown field "format"'),
    ({"thinking": 1}, "thinking is 1"),
    ({"tool_choice": "maybe"}, 'tool_choice is "maybe"'),
    ({"tool_choice": "required"}, "there are no tools"),
    ({"response_format": {"type": "xml"}}, 'type is "xml"'),
    ({"response_format": {"type": "json_schema"}}, "without a schema"),
    ({"response_format": {"type": "json_schema", "schema": {"pattern": "x"}}},
     'response_format: schema at #: keyword "pattern"'),
    ({"tools": [{"name": "f", "parameters": {"type": "array"}}]}, "tool f: schema at #"),
    ({"tools": [{"name": "f", "parameters": {"properties": {"p": {"pattern": "x"}}}}]},
     'tool f: schema at #/properties/p: keyword "pattern"'),
    ({"tools": [{"parameters": {}}]}, "without a name"),
])
def test_replies_that_are_refused(probe, reply, named):
    assert named in probe.ask(reply=reply, walk=1)["error"]
