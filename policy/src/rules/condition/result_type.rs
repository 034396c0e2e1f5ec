//! The type of what a `when` expression gives, as far as the expression alone tells it.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, operators};

/// A number, in the words of an error.
const NUMBER: &str = "a number";
/// A text, in the words of an error.
const TEXT: &str = "a text";
/// A list, in the words of an error.
const LIST: &str = "a list";
/// An object, in the words of an error.
const OBJECT: &str = "an object";

/// The type of the result of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultType {
    /// The result is true or false, if the expression can be evaluated.
    Boolean,
    /// The type depends on what the caller gives.
    Unknown,
    /// The result is never true or false; holds what it is.
    Other(&'static str),
}

impl ResultType {
    /// The type of what `expression` gives.
    ///
    /// INVARIANT: the parser bounds the depth of an expression, so the recursion is bounded too.
    pub(super) fn of(expression: &IdedExpr) -> Self {
        match &expression.expr {
            Expr::Literal(literal) => of_literal(literal),
            Expr::Ident(_) => Self::Other(OBJECT),
            Expr::Select(select) if select.test => Self::Boolean,
            Expr::Select(select) => of_member(&select.operand, &select.field),
            Expr::List(_) => Self::Other(LIST),
            Expr::Map(_) | Expr::Struct(_) => Self::Other(OBJECT),
            Expr::Call(call) => of_call(call),
            Expr::Comprehension(inner) => of_loop(inner),
            Expr::Unspecified => Self::Unknown,
        }
    }
}

const fn of_literal(literal: &LiteralValue) -> ResultType {
    match literal {
        LiteralValue::Boolean(_) => ResultType::Boolean,
        LiteralValue::Bytes(_) => ResultType::Other("bytes"),
        LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => {
            ResultType::Other(NUMBER)
        }
        LiteralValue::Null => ResultType::Other("null"),
        LiteralValue::String(_) => ResultType::Other(TEXT),
    }
}

/// The type of a member of one of the variables.
fn of_member(operand: &IdedExpr, field: &str) -> ResultType {
    let Expr::Ident(variable) = &operand.expr else { return ResultType::Unknown };
    match (variable.as_str(), field) {
        ("risk", "registered" | "approvalRequired" | "idempotent") => ResultType::Boolean,
        ("risk", "retries") => ResultType::Other(NUMBER),
        ("principal", "groups" | "roles" | "scopes" | "actors") => ResultType::Other(LIST),
        (
            "risk" | "principal" | "server" | "tool" | "prompt" | "resource" | "skill" | "method",
            _,
        ) => ResultType::Other(TEXT),
        // An argument, or the variable of a loop.
        _ => ResultType::Unknown,
    }
}

fn of_call(call: &CallExpr) -> ResultType {
    match call.func_name.as_str() {
        operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT
        | operators::EQUALS
        | operators::NOT_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::IN
        | "contains"
        | "endsWith"
        | "matches"
        | "startsWith" => ResultType::Boolean,
        operators::ADD => ResultType::Other("a number, a text or a list"),
        operators::SUBSTRACT
        | operators::MULTIPLY
        | operators::DIVIDE
        | operators::MODULO
        | operators::NEGATE
        | "double"
        | "int"
        | "size"
        | "uint" => ResultType::Other(NUMBER),
        "string" => ResultType::Other(TEXT),
        "bytes" => ResultType::Other("bytes"),
        "type" => ResultType::Other("a type"),
        operators::CONDITIONAL => match &call.args[..] {
            [_, yes, no] => of_either(ResultType::of(yes), ResultType::of(no)),
            _ => ResultType::Unknown,
        },
        _ => ResultType::Unknown,
    }
}

/// The type of one of two results.
const fn of_either(yes: ResultType, no: ResultType) -> ResultType {
    match (yes, no) {
        (ResultType::Boolean, ResultType::Boolean) => ResultType::Boolean,
        (ResultType::Other(what), ResultType::Other(_)) => ResultType::Other(what),
        (ResultType::Boolean | ResultType::Unknown | ResultType::Other(_), _) => {
            ResultType::Unknown
        }
    }
}

/// The type of a loop: that of its accumulator, or of what is made of it at the end.
fn of_loop(inner: &ComprehensionExpr) -> ResultType {
    if let Expr::Ident(name) = &inner.result.expr
        && *name == inner.accu_var
    {
        return ResultType::of(&inner.accu_init);
    }
    ResultType::of(&inner.result)
}
