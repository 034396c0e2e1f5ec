#!/usr/bin/env python3
"""Whether events are what OCSF 1.8.0 says: reads one on each line of standard input, and says what is not.

`ocsf.json` beside this file has the shape of the classes that are exported and of the objects in them: names, types,
requirements and values, taken from the schema of OCSF 1.8.0 (github.com/ocsf/ocsf-schema, Apache-2.0) without its texts.
"""
import json
import pathlib
import sys

SCHEMA = json.loads(pathlib.Path(__file__).with_name("ocsf.json").read_text())
CLASSES = {one["uid"]: (name, one) for name, one in SCHEMA["classes"].items()}
# Their values follow from the class.
OF_CLASS = {"class_uid", "category_uid", "type_uid"}
TYPES = {
    "integer_t": int, "long_t": int, "timestamp_t": int, "port_t": int, "boolean_t": bool, "float_t": (int, float),
    "json_t": object,
}


def check(what, shape, value, profiles, wrong):
    """One object against its shape."""
    if not isinstance(value, dict):
        wrong.append(f"{what} is no object")
        return
    known = shape["attributes"]
    for name, member in value.items():
        at = f"{what}.{name}"
        if name not in known:
            wrong.append(f"{at} is not known")
            continue
        kind = known[name]
        if kind.get("profile") and kind["profile"] not in profiles:
            wrong.append(f"{at} belongs to the profile {kind['profile']}, which is not named")
        if kind.get("array") != isinstance(member, list) and (kind.get("array") or isinstance(member, list)):
            wrong.append(f"{at} is a list, or is not")
            continue
        for one in member if isinstance(member, list) else [member]:
            if kind["is"] == "object" and kind["type"] not in SCHEMA["objects"]:
                wrong.append(f"{at} is of a kind whose shape is not at hand: {kind['type']}")
            # An object of no shape, such as `unmapped`, may be any.
            elif kind["is"] == "object" and SCHEMA["objects"][kind["type"]]["attributes"]:
                check(at, SCHEMA["objects"][kind["type"]], one, profiles, wrong)
            elif kind["is"] != "object":
                wanted = TYPES.get(kind["type"], str)
                if not isinstance(one, wanted) or isinstance(one, bool) and wanted is not bool and wanted is not object:
                    wrong.append(f"{at} is no {kind['type']}")
                if kind.get("enum") and name not in OF_CLASS and str(one) not in kind["enum"]:
                    wrong.append(f"{at} is {one!r}, which is no value of it")
    for name, kind in known.items():
        named = kind.get("profile") is None or kind["profile"] in profiles
        if kind["requirement"] == "required" and named and name not in value:
            wrong.append(f"{what}.{name} is missing")
    for name, members in shape["constraints"].items():
        found = sum(member in value for member in members)
        if name == "at_least_one" and found == 0 or name == "just_one" and found != 1:
            wrong.append(f"{what} has {found} of {members}")


def main():
    count = 0
    for number, line in enumerate(sys.stdin, 1):
        event, wrong = json.loads(line), []
        name, shape = CLASSES.get(event.get("class_uid"), (None, None))
        if shape is None:
            wrong.append(f"class {event.get('class_uid')} is not one that is exported")
        else:
            profiles = event.get("metadata", {}).get("profiles", [])
            check(name, shape, event, profiles, wrong)
            if event.get("type_uid") != event["class_uid"] * 100 + event.get("activity_id", 0):
                wrong.append("type_uid is not that of the class and the activity")
            if event.get("category_uid") != shape["category"]:
                wrong.append("category_uid is not that of the class")
            if event["metadata"]["version"] != SCHEMA["version"]:
                wrong.append("it says that it is of another version")
        for one in wrong:
            print(f"{number}: {one}")
        count += bool(wrong)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
