//! Edits of input schemas. Each returns `None` where it does not apply.

use serde_json::{Map, Value, json};

fn properties(tool: &mut Value) -> Option<&mut Map<String, Value>> {
    tool.get_mut("inputSchema")?.get_mut("properties")?.as_object_mut()
}

fn required(tool: &Value) -> Vec<String> {
    let all = tool["inputSchema"]["required"].as_array().into_iter().flatten();
    all.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// The first argument, one that must be given if there is one.
fn first(tool: &Value) -> Option<String> {
    let properties = tool["inputSchema"]["properties"].as_object()?;
    required(tool)
        .into_iter()
        .find(|name| properties.contains_key(name))
        .or(properties.keys().next().cloned())
}

pub(crate) fn renamed(mut tool: Value) -> Option<Value> {
    let name = first(&tool)?;
    let other = format!("{name}_value");
    let members = properties(&mut tool)?;
    let schema = members.remove(&name)?;
    members.insert(other.clone(), schema);
    for one in tool["inputSchema"]["required"].as_array_mut().into_iter().flatten() {
        if *one == json!(name) {
            *one = json!(other);
        }
    }
    Some(tool)
}

pub(crate) fn dropped(mut tool: Value) -> Option<Value> {
    let name = first(&tool)?;
    properties(&mut tool)?.remove(&name)?;
    if let Some(required) = tool["inputSchema"]["required"].as_array_mut() {
        required.retain(|one| *one != json!(name));
    }
    Some(tool)
}

/// An argument that need not be given is gone.
pub(crate) fn optional_dropped(mut tool: Value) -> Option<Value> {
    let required = required(&tool);
    let members = properties(&mut tool)?;
    let name = members.keys().find(|name| !required.contains(name))?.clone();
    members.remove(&name)?;
    Some(tool)
}

pub(crate) fn retyped(mut tool: Value) -> Option<Value> {
    let name = first(&tool)?;
    let schema = properties(&mut tool)?.get_mut(&name)?;
    let other = match schema["type"].as_str()? {
        "string" => "number",
        _ => "string",
    };
    schema["type"] = json!(other);
    Some(tool)
}

pub(crate) fn without_required(mut tool: Value) -> Option<Value> {
    if required(&tool).is_empty() {
        return None;
    }
    tool["inputSchema"].as_object_mut()?.remove("required");
    Some(tool)
}

pub(crate) fn all_required(mut tool: Value) -> Option<Value> {
    let names: Vec<String> = properties(&mut tool)?.keys().cloned().collect();
    if names.len() <= required(&tool).len() {
        return None;
    }
    tool["inputSchema"]["required"] = json!(names);
    Some(tool)
}

fn with_enum(tool: &mut Value) -> Option<&mut Value> {
    properties(tool)?
        .values_mut()
        .find(|one| one["enum"].as_array().is_some_and(|all| all.len() > 1))
}

pub(crate) fn enum_dropped(mut tool: Value) -> Option<Value> {
    with_enum(&mut tool)?.as_object_mut()?.remove("enum")?;
    Some(tool)
}

pub(crate) fn enum_wider(mut tool: Value) -> Option<Value> {
    with_enum(&mut tool)?["enum"].as_array_mut()?.push(json!("everything"));
    Some(tool)
}

pub(crate) fn enum_value_gone(mut tool: Value) -> Option<Value> {
    with_enum(&mut tool)?["enum"].as_array_mut()?.remove(0);
    Some(tool)
}

pub(crate) fn enum_reordered(mut tool: Value) -> Option<Value> {
    with_enum(&mut tool)?["enum"].as_array_mut()?.reverse();
    Some(tool)
}

pub(crate) fn required_reordered(mut tool: Value) -> Option<Value> {
    let all = tool["inputSchema"]["required"].as_array_mut().filter(|all| all.len() > 1)?;
    all.reverse();
    Some(tool)
}

pub(crate) fn bounds_dropped(mut tool: Value) -> Option<Value> {
    const BOUNDS: &[&str] =
        &["minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems"];
    let mut count = 0;
    for schema in properties(&mut tool)?.values_mut().filter_map(Value::as_object_mut) {
        count += BOUNDS.iter().filter(|bound| schema.remove(**bound).is_some()).count();
    }
    (count > 0).then_some(tool)
}

pub(crate) fn opened(mut tool: Value) -> Option<Value> {
    let schema = tool["inputSchema"].as_object_mut()?;
    (schema.remove("additionalProperties")? == json!(false)).then_some(tool)
}

pub(crate) fn emptied(mut tool: Value) -> Option<Value> {
    if properties(&mut tool)?.is_empty() {
        return None;
    }
    tool["inputSchema"] = json!({ "type": "object" });
    Some(tool)
}

pub(crate) fn without_output(mut tool: Value) -> Option<Value> {
    tool.as_object_mut()?.remove("outputSchema")?;
    Some(tool)
}

/// A new argument.
pub(crate) fn added(mut tool: Value, name: &str, is_required: bool) -> Option<Value> {
    properties(&mut tool)?.insert(name.to_owned(), json!({ "type": "string" }));
    if is_required {
        let mut names = required(&tool);
        names.push(name.to_owned());
        tool["inputSchema"]["required"] = json!(names);
    }
    Some(tool)
}

/// Changes the descriptions of arguments; `edit` returns `None` for one that stays.
pub(crate) fn descriptions(
    mut tool: Value,
    edit: impl Fn(&str, &str) -> Option<String>,
) -> Option<Value> {
    let mut count = 0;
    for (name, schema) in properties(&mut tool)? {
        let before = schema["description"].as_str().unwrap_or_default().to_owned();
        let Some(after) = edit(name, &before) else { continue };
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".to_owned(), json!(after));
            count += 1;
        }
    }
    (count > 0).then_some(tool)
}

/// The descriptions of two arguments change places.
pub(crate) fn descriptions_swapped(mut tool: Value) -> Option<Value> {
    let described = |schema: &Value| schema["description"].as_str().map(str::to_owned);
    let members = properties(&mut tool)?;
    let all: Vec<_> = members
        .iter()
        .filter_map(|(name, schema)| Some((name.clone(), described(schema)?)))
        .collect();
    let (first, last) = (all.first()?, all.last()?);
    let differs = first.1.split(' ').filter(|word| !last.1.contains(*word)).count() > 3;
    if first.0 == last.0 || !differs || last.1.split(' ').count() < 4 {
        return None;
    }
    members.get_mut(&first.0)?["description"] = json!(last.1);
    members.get_mut(&last.0)?["description"] = json!(first.1);
    Some(tool)
}

/// Examples of values.
pub(crate) fn with_examples(mut tool: Value) -> Option<Value> {
    let members = properties(&mut tool)?.values_mut();
    let mut texts =
        members.filter(|schema| schema["type"] == json!("string") && schema["enum"].is_null());
    let schema = texts.next()?.as_object_mut()?;
    schema.insert("examples".to_owned(), json!(["Berlin", "Lisbon"]));
    Some(tool)
}

/// The members in the opposite order, as a text.
pub(crate) fn reordered(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}: {}", Value::String(name.clone()), reordered(value))
            };
            format!("{{{}}}", members.iter().rev().map(member).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(reordered).collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}
