//! What checking one value against one schema costs (vector PV-38): both come from peers, and the cost is
//! up to their product.
//!
//! A walk through both as the validator does, counting the parts of the schema that are applied to each
//! part of the value. It spends from the budget before the validator runs, and stops with it.

use serde_json::Value;

use crate::work::Budget;

/// What applying one part of a schema to one part of a value costs, in units.
const STEP: usize = 64;
/// What one byte of a text costs that a pattern or a format is matched with, in units.
const MATCH: usize = 16;
/// What one item costs that is compared with others, in units.
const COMPARED: usize = 16;

/// Spends what checking `value` against `schema` costs; `false` when that is too much.
///
/// INVARIANT: a schema whose references never end is refused when it is made ready, and the parser bounds
/// the depth of values, so the recursion is bounded.
pub(super) fn spend(root: &Value, value: &Value, budget: &Budget) -> bool {
    Walk { root, budget }.part(root, value)
}

struct Walk<'a> {
    root: &'a Value,
    budget: &'a Budget,
}

impl<'a> Walk<'a> {
    fn part(&self, schema: &'a Value, value: &Value) -> bool {
        let Value::Object(members) = schema else { return self.budget.spend(STEP) };
        self.budget.spend(STEP.saturating_mul(1 + members.len()))
            && members.iter().all(|(keyword, part)| self.keyword(keyword, part, schema, value))
    }

    fn keyword(&self, keyword: &str, part: &'a Value, schema: &'a Value, value: &Value) -> bool {
        match keyword {
            "$ref" => {
                let pointer = part.as_str().and_then(|to| to.strip_prefix('#'));
                let target = pointer.and_then(|pointer| self.root.pointer(pointer));
                target.is_none_or(|target| self.part(target, value))
            }
            "not" | "if" | "then" | "else" => self.part(part, value),
            "allOf" | "anyOf" | "oneOf" => {
                part.as_array().into_iter().flatten().all(|part| self.part(part, value))
            }
            "dependentSchemas" | "dependencies" => {
                let parts = part.as_object().into_iter().flatten();
                parts
                    .filter(|(name, _)| value.get(name).is_some())
                    .all(|(_, p)| self.part(p, value))
            }
            "properties" => part.as_object().into_iter().flatten().all(|(name, part)| {
                self.budget.spend(STEP)
                    && value.get(name).is_none_or(|value| self.part(part, value))
            }),
            "patternProperties" => part.as_object().into_iter().flatten().all(|(_, part)| {
                Self::members(value).all(|(name, value)| {
                    self.budget.spend(name.len().saturating_mul(MATCH)) && self.part(part, value)
                })
            }),
            "propertyNames" => Self::members(value).all(|(name, _)| {
                self.budget.spend(name.len()) && self.part(part, &Value::String(name.clone()))
            }),
            "additionalProperties" => {
                // Each name is looked for among the others.
                Self::members(value).all(|(_, value)| self.part(part, value))
            }
            "unevaluatedProperties" => {
                let each = self.in_place(schema, value);
                Self::members(value)
                    .all(|(_, value)| self.budget.spend(each) && self.part(part, value))
            }
            "unevaluatedItems" => {
                let each = self.in_place(schema, value);
                Self::items(value).all(|value| self.budget.spend(each) && self.part(part, value))
            }
            "items" | "prefixItems" | "additionalItems" => match part {
                Value::Array(parts) => {
                    parts.iter().zip(Self::items(value)).all(|(part, value)| self.part(part, value))
                }
                part => Self::items(value).all(|value| self.part(part, value)),
            },
            "contains" => Self::items(value).all(|value| self.part(part, value)),
            "pattern" | "format" => {
                let length = value.as_str().map_or(0, str::len);
                self.budget.spend(length.saturating_mul(MATCH))
            }
            // Each is compared with the value.
            "enum" => {
                let parts = part.as_array().map_or(0, Vec::len);
                self.budget.spend(parts.saturating_mul(COMPARED))
                    && (!is_container(value) || self.compared(part))
            }
            "const" => !is_container(value) || self.compared(part),
            "uniqueItems" => self.compared(value),
            _ => true,
        }
    }

    /// What the parts of a schema cost that are applied to the value itself, which is what looking for
    /// members or items that none of them evaluates costs for each.
    fn in_place(&self, schema: &'a Value, value: &Value) -> usize {
        let before = self.budget.spent();
        for keyword in ["allOf", "anyOf", "oneOf", "if", "then", "else", "$ref", "dependentSchemas"]
        {
            if let Some(part) = schema.get(keyword)
                && !self.keyword(keyword, part, schema, value)
            {
                break;
            }
        }
        usize::try_from(self.budget.spent() - before).unwrap_or(usize::MAX)
    }

    /// Spends what comparing all of a value costs.
    fn compared(&self, value: &Value) -> bool {
        self.budget.spend(COMPARED)
            && Self::items(value).all(|item| self.compared(item))
            && Self::members(value)
                .all(|(name, member)| self.budget.spend(name.len()) && self.compared(member))
    }

    fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
        value.as_object().into_iter().flatten()
    }

    fn items(value: &Value) -> impl Iterator<Item = &Value> {
        value.as_array().into_iter().flatten()
    }
}

const fn is_container(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::spend;
    use crate::work::Budget;

    fn cost(schema: &Value, value: &Value) -> u64 {
        let budget = Budget::unlimited();
        assert!(spend(schema, value, &budget));
        budget.spent()
    }

    #[test]
    fn the_cost_is_that_of_the_parts_that_are_applied() {
        let wide: Vec<Value> = (0..200).map(|n| json!({ "const": n })).collect();
        let items: Vec<Value> = (0..1000).map(Value::from).collect();
        let plain = cost(&json!({ "items": { "type": "number" } }), &json!(items));
        let branches = cost(&json!({ "items": { "anyOf": wide } }), &json!(items));
        assert!(branches > 100 * plain, "{branches} {plain}");
        // A part that is for another member costs nothing.
        let schema = json!({ "properties": { "a": { "items": { "anyOf": wide } } } });
        assert!(cost(&schema, &json!({ "b": items })) < 1000);
    }

    #[test]
    fn what_is_not_evaluated_costs_each_member_what_all_parts_cost() {
        let parts: Vec<Value> = (0..50).map(|n| json!({ "required": [format!("m{n}")] })).collect();
        let value: Value =
            (0..500).map(|n| (format!("m{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
        let closed = json!({ "anyOf": parts, "unevaluatedProperties": false });
        let open = json!({ "anyOf": parts });
        assert!(cost(&closed, &value) > 100 * cost(&open, &value));
    }

    #[test]
    fn references_are_followed_and_the_walk_stops_with_its_budget() {
        let schema = json!({ "$ref": "#/$defs/node", "$defs": { "node": {
            "properties": { "left": { "$ref": "#/$defs/node" }, "right": { "$ref": "#/$defs/node" } } } } });
        let deep = (0..50).fold(json!({}), |inner, _| json!({ "left": inner }));
        assert!(cost(&schema, &deep) > 50 * 64);
        let budget = Budget::new(1000);
        assert!(!spend(&schema, &deep, &budget) && budget.is_exhausted());
    }
}
