"""Definitions of tools as real programs have them: nested objects, enums, arrays of objects, unions, none at all."""


def obj(properties, required=None, **more):
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": list(properties) if required is None else required, **more}


WORD = {"type": "string", "maxLength": 12}
COUNT = {"type": "integer", "minimum": 0, "maximum": 99}
FLAG = {"type": "boolean"}
DATE = {"type": "string", "pattern": "^20[0-9]{2}-[01][0-9]-[0-3][0-9]$"}


def some(item, least=1, most=2):
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}


def maybe(schema):
    return {"anyOf": [schema, {"type": "null"}]}


PARAMETERS = {
    "get_weather": obj({"city": WORD, "unit": {"enum": ["celsius", "fahrenheit"]}}),
    "now": None,
    "ping": {"type": "object", "properties": {}},
    "search": obj({"query": WORD, "limit": COUNT}, ["query"]),
    "send_mail": obj({"to": some(WORD), "subject": WORD, "body": WORD, "urgent": FLAG}),
    "book_flight": obj({"from": {"type": "string", "pattern": "^[A-Z]{3}$"}, "to": {"type": "string", "pattern": "^[A-Z]{3}$"},
                        "day": DATE, "seats": COUNT}),
    "add": obj({"a": {"type": "number", "minimum": -5, "maximum": 5}, "b": COUNT}),
    "set_light": obj({"room": WORD, "state": {"enum": ["on", "off"]}, "level": maybe(COUNT)}),
    "create_order": obj({"items": some(obj({"sku": WORD, "count": COUNT})), "ship": obj({"street": WORD, "zip": WORD})}),
    "query_sql": obj({"sql": {"type": "string", "maxLength": 20}}),
    "read-file": obj({"path": WORD, "lines": maybe(some(COUNT, 2, 2))}),
    "write_file": obj({"path": WORD, "text": {"type": "string", "maxLength": 16}, "mode": {"enum": ["w", "a"]}}),
    "run.shell": obj({"argv": some(WORD), "timeout": COUNT}),
    "translate": obj({"text": WORD, "target": {"enum": ["de", "fr", "ja", "sv"]}}),
    "classify": obj({"label": {"enum": ["spam", "ham"]}, "score": {"enum": [0, 0.5, 1]}}),
    "final_result": obj({"name": WORD, "age": COUNT}),
    "plot": obj({"points": some(obj({"x": COUNT, "y": COUNT}))}),
    "set_timer": obj({"minutes": {"type": "integer", "minimum": 1, "maximum": 60}}),
    "vote": obj({"choice": {"const": "yes"}}),
    "move": obj({"direction": {"enum": ["up", "down", "left", "right"]}, "steps": {"type": "integer", "minimum": 1, "maximum": 9}}),
    "pay": obj({"amount": {"type": "integer", "minimum": 1, "maximum": 1000}, "currency": {"enum": ["EUR", "USD"]},
                "method": {"oneOf": [obj({"kind": {"const": "card"}, "number": WORD}), obj({"kind": {"const": "cash"}})]}}),
    "tag": obj({"tags": some({"enum": ["a", "b", "c"]}, 0, 3)}),
    "tree": {"$defs": {"node": obj({"v": COUNT, "next": maybe({"$ref": "#/$defs/node"})})},
             **obj({"root": obj({"v": COUNT})})},
    "person": {"$defs": {"P": obj({"name": WORD})}, **obj({"p": {"$ref": "#/$defs/P"}})},
    "either": obj({"value": {"anyOf": [WORD, COUNT, FLAG]}}),
    "nothing": obj({}),
    "matrix": obj({"rows": some(some(COUNT, 2, 2), 1, 2)}),
    "ask": obj({"question": {"type": "string", "maxLength": 15, "description": "with \"quotes\" {and} braces"}}),
    "uuid": obj({"id": {"type": "string", "pattern": "^[0-9a-f]{8}$"}}),
    "nullable": obj({"x": {"type": ["integer", "null"], "minimum": 0, "maximum": 9}}),
}


def tool(name, **more):
    function = {"name": name, "description": f"the tool {name}", **more}
    if PARAMETERS[name] is not None:
        function["parameters"] = PARAMETERS[name]
    return {"type": "function", "function": function}


ALL = [tool(name) for name in PARAMETERS]
EMPTY = {"type": "object", "maxProperties": 0}


def schema_of(name):
    """What the arguments of a call match."""
    return PARAMETERS[name] or EMPTY
