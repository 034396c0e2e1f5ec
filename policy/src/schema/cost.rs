//! Estimates the cost of validating one value against one schema (vector PV-38). Both come from peers, and the cost
//! can grow with their product.
//!
//! Walks both like the validator does, and counts the subschemas applied to each part of the value. The walk spends
//! from the budget before the validator runs, and ends when the budget is exhausted.

use std::cell::Cell;

use serde_json::Value;

use super::keywords::{self, KeywordContents};
use crate::base::work::WorkBudget;

/// Units for applying one subschema to one part of a value.
const STEP: usize = 64;
/// Units per byte of a text that is matched against a pattern or format.
const MATCH: usize = 16;
/// Units per item that is compared with others.
const COMPARED: usize = 16;

/// Units for dividing two short integers.
const DIVISION: usize = 512;
/// Units for reducing a fraction, and for each pair of words of 64 bits of its integers.
const FRACTION: usize = 16 * 1024;
const WORDS: usize = 16;
/// Most bits of a number that is divided as a short integer.
const SHORT: usize = 88;

/// Deepest nesting of applied subschemas, in schema and value together: the validator is recursive like this walk,
/// and values can be deep as well.
const DEEP: usize = 512;

/// Spends the cost of validating `value` against `schema`; `false` if it exceeds the budget or the depth limit.
pub(super) fn spend(root: &Value, value: &Value, budget: &WorkBudget) -> bool {
    CostWalk { root, budget, depth: Cell::new(0) }.part(root, value)
}

struct CostWalk<'a> {
    root: &'a Value,
    budget: &'a WorkBudget,
    depth: Cell<usize>,
}

impl<'a> CostWalk<'a> {
    fn part(&self, schema: &'a Value, value: &Value) -> bool {
        let depth = self.depth.get();
        if depth >= DEEP {
            return false;
        }
        let Value::Object(members) = schema else { return self.budget.spend(STEP) };
        self.depth.set(depth + 1);
        let fits = self.budget.spend(STEP.saturating_mul(1 + members.len()))
            && members.iter().all(|(keyword, part)| self.keyword(keyword, part, schema, value));
        self.depth.set(depth);
        fits
    }

    fn keyword(&self, keyword: &str, part: &'a Value, schema: &'a Value, value: &Value) -> bool {
        match keyword {
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
            "unevaluatedProperties" | "unevaluatedItems" => {
                let each = self.in_place(schema, value);
                Self::members(value)
                    .map(|(_, member)| member)
                    .chain(Self::items(value))
                    .all(|value| self.budget.spend(each) && self.part(part, value))
            }
            "items" | "prefixItems" if part.is_array() => {
                let parts = part.as_array().into_iter().flatten();
                parts.zip(Self::items(value)).all(|(part, value)| self.part(part, value))
            }
            "pattern" | "format" => {
                let length = value.as_str().map_or(0, str::len);
                self.budget.spend(length.saturating_mul(MATCH))
            }
            // Each value is compared.
            "enum" => {
                let parts = part.as_array().map_or(0, Vec::len);
                self.budget.spend(parts.saturating_mul(COMPARED))
                    && (!is_container(value) || self.compared(part))
            }
            "const" => !is_container(value) || self.compared(part),
            "uniqueItems" => self.compared(value),
            "multipleOf" => self.budget.spend(division(part, value)),
            _ => match keywords::holds(keyword) {
                KeywordContents::Reference => {
                    // References without a target were rejected when the schema was compiled.
                    let target = part.as_str().and_then(|to| keywords::target(self.root, to));
                    target.is_some_and(|target| self.part(target, value))
                }
                held @ (KeywordContents::Same
                | KeywordContents::SameList
                | KeywordContents::SameMap) => {
                    keywords::schemas(held, part).iter().all(|part| self.part(part, value))
                }
                held @ (KeywordContents::Inside
                | KeywordContents::InsideList
                | KeywordContents::InsideMap) => keywords::schemas(held, part).iter().all(|part| {
                    Self::members(value)
                        .map(|(_, member)| member)
                        .chain(Self::items(value))
                        .all(|value| self.part(part, value))
                }),
                KeywordContents::Definitions
                | KeywordContents::Name
                | KeywordContents::Dynamic
                | KeywordContents::Data => true,
            },
        }
    }

    /// The cost of all subschemas that apply to the value itself. The validator incurs it again for each member or
    /// item to decide whether that is evaluated.
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

    /// Spends the cost of comparing a complete value.
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

/// Units for dividing `value` by `divisor`. What is not whole is divided as two integers where they are short, and
/// otherwise as a fraction that the validator reduces, which takes memory and time with the length of its integers: they
/// are as long as the exponents are large.
fn division(divisor: &Value, value: &Value) -> usize {
    let (Value::Number(divisor), Value::Number(value)) = (divisor, value) else { return 0 };
    let is_whole = |number: &serde_json::Number| !number.is_f64();
    if is_whole(divisor) && is_whole(value) {
        return 0;
    }
    if value.as_f64() == Some(0.0) {
        return DIVISION;
    }
    let (divisor, value) = (exponent(divisor), exponent(value));
    if divisor.max(value) <= SHORT {
        return DIVISION;
    }
    let words = (divisor + value).div_ceil(64) + 2;
    FRACTION + words * words * WORDS
}

/// The magnitude of the binary exponent of a number, at most 1074.
fn exponent(number: &serde_json::Number) -> usize {
    let bits = number.as_f64().unwrap_or(f64::MAX).abs().to_bits() >> (f64::MANTISSA_DIGITS - 1);
    // The exponent has 11 bits and a bias of 1023 (IEEE 754, binary64).
    usize::try_from(bits).unwrap_or(usize::MAX).abs_diff(1023)
}

const fn is_container(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::spend;
    use crate::base::work::WorkBudget;

    fn cost(schema: &Value, value: &Value) -> u64 {
        let budget = WorkBudget::unlimited();
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
        // A subschema for another member costs nothing.
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
    fn a_division_costs_what_its_fractions_take() {
        let one = |divisor: f64, value: Value| {
            let schema = json!({ "items": { "multipleOf": divisor } });
            cost(&schema, &json!([value]))
                - cost(&json!({ "items": { "maximum": 1 } }), &json!([1]))
        };
        let whole = json!({ "items": { "multipleOf": 5 } });
        assert_eq!(
            cost(&whole, &json!([10])),
            cost(&json!({ "items": { "maximum": 5 } }), &json!([10]))
        );
        // A price costs no more than its bytes may.
        assert!(one(0.01, json!(19.99)) < 1000);
        assert!(one(0.01, json!(0.0)) < 1000);
        for (divisor, value) in
            [(1e-300, 1e308), (1e-300, 7.0), (5e-324, 1.0), (0.01, 1e40), (1e-10, 1e28)]
        {
            assert!(one(divisor, json!(value)) > 16_000, "{divisor} {value}");
        }
    }

    #[test]
    fn references_are_followed_and_the_walk_stops_with_its_budget() {
        let schema = json!({ "$ref": "#/$defs/node", "$defs": { "node": {
            "properties": { "left": { "$ref": "#/$defs/node" }, "right": { "$ref": "#/$defs/node" } } } } });
        let deep = (0..50).fold(json!({}), |inner, _| json!({ "left": inner }));
        assert!(cost(&schema, &deep) > 50 * 64);
        let budget = WorkBudget::new(1000);
        assert!(!spend(&schema, &deep, &budget) && budget.is_exhausted());
    }
}
