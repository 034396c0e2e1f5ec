//! The `when` condition of a rule: a CEL expression with bounded cost.
//!
//! The cost is bounded before the first call, by the shape of the expression: limited length, no nested loops, and no
//! regular expression that a peer can choose (each is compiled with the rule). An expression with a loop reads at
//! most [`LOOP_INPUT`] bytes of arguments; more is an error, and an error never grants. The cost of an evaluation is
//! taken from the budget of its exchange.

mod nesting;
mod result_type;
mod syntax;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};
use cel::extractors::This;
use cel::objects::Key;
use cel::{Context, Env, ExecutionError, Program, Value as Cel};
use json::{JsonKind, Value};
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::{ClientId, RoleName, Scope, ServerName};
use policy_core::subject::principal::Principal;
use regex::{Regex, RegexBuilder};

use crate::definition::offer::ItemKind as Sort;
use crate::definition::registry::{DataClass, RegistryEntry, ToolEffect};
use crate::flow::guard::FlowFacts;
use crate::rules::decision::{ConditionFault, ConditionRemedy};
use crate::spelling;
use result_type::ResultType;

/// Longest expression, in bytes.
const LENGTH: usize = 2048;
/// Most brackets, conditionals and unary signs that may be open at once: the parser is recursive.
const NESTING: usize = 32;
/// Most bytes of arguments that an expression with a loop may read.
const LOOP_INPUT: usize = 16 * 1024;
/// Largest automaton of one regular expression, in bytes, both compiled and at run time: the default of the library.
/// Counted repetitions of `\w` are large because it covers all letters of Unicode; `[\w.+-]{1,64}` is common.
const PATTERN: usize = 10 << 20;
/// Most units that one byte of text costs when matched by a regular expression: the time of the library's slowest
/// engine grows with the size of the pattern.
const MATCH: usize = 64;
/// Units per byte of arguments that an expression reads.
const READ: usize = 16;
/// Units per loop iteration, which takes about a microsecond.
const TURN: usize = 1024;
/// Most units that the regular expressions of one evaluation may cost in total.
const MOST_MATCHED: usize = 64 << 20;
/// Variables that an expression may read.
const VARIABLES: [&str; 11] = [
    "principal",
    "server",
    "tool",
    "prompt",
    "resource",
    "skill",
    "method",
    "arguments",
    "risk",
    "flow",
    "origin",
];
/// Functions that an expression may call, besides operators and the macros `has`, `all`, `exists`, `exists_one`,
/// `filter` and `map`.
const FUNCTIONS: [&str; 11] = [
    "bytes",
    "contains",
    "double",
    "endsWith",
    "int",
    "matches",
    "size",
    "startsWith",
    "string",
    "type",
    "uint",
];

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Why an expression is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The expression is too long; holds its length in bytes.
    #[error("is {0} bytes long; the most is {LENGTH}")]
    Length(usize),
    /// Brackets and operators are nested too deeply.
    #[error("is nested deeper than {NESTING} levels")]
    Nesting,
    /// The expression is not valid CEL.
    #[error("is not CEL: {0}")]
    Syntax(CelSyntaxError),
    /// The expression reads a variable that is not available.
    #[error("reads `{0}`; use {list}", list = VARIABLES.join(", "))]
    Variable(String),
    /// The expression calls a function that is not available.
    #[error("calls `{0}`, which is not known; use {list}", list = FUNCTIONS.join(", "))]
    Function(String),
    /// A loop inside a loop, whose cost is not bounded.
    #[error("has a loop inside a loop, whose cost has no bound; use one loop")]
    NestedLoop,
    /// A pattern that is not a literal: a caller could choose it.
    #[error("gives `matches` a pattern that is not a literal; write the pattern out")]
    Pattern,
    /// A regular expression that is invalid or too large to compile.
    #[error("gives `matches` the pattern `{pattern}`, which cannot be used: {reason}")]
    Regex {
        /// The regular expression as written.
        pattern: String,
        /// The error of the regex library, on one line.
        reason: String,
    },
    /// The result is never true or false; holds what it is.
    #[error("gives {0}, which is neither true nor false")]
    NotBoolean(&'static str),
}

pub use syntax::CelSyntaxError;

/// A compiled CEL expression.
#[derive(Debug)]
pub struct Condition {
    program: Program,
    reads_arguments: bool,
    reads_risk: bool,
    reads_flow: bool,
    reads_origin: bool,
    result: ResultType,
    loops: Loops,
    /// The literal patterns of `matches`, compiled.
    patterns: Arc<BTreeMap<String, Regex>>,
    /// The names of members that the expression itself writes.
    members: BTreeSet<Arc<str>>,
    /// The places in the arguments that the expression reads.
    paths: BTreeSet<Vec<ArgumentStep>>,
}

/// The value of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionOutcome {
    /// The expression is true.
    Holds,
    /// The expression is false.
    Fails,
    /// The expression depends on arguments that are not known yet.
    Depends,
}

/// Why an expression has no value.
#[derive(Debug, thiserror::Error)]
pub enum EvaluationError {
    /// A member of this name does not exist.
    #[error("there is no `{0}`; write `has(...)` before it")]
    Missing(Arc<String>),
    /// Reading the arguments costs more than the budget of the message allows.
    #[error("reading the arguments for it exceeds the inspection budget")]
    Budget,
    /// The arguments are too long for an expression with a macro that repeats.
    #[error(
        "the arguments are longer than {LOOP_INPUT} bytes, which is too long for `all`, `exists` and the like"
    )]
    TooLong,
    /// A server may read another member of the arguments as this one, which the expression reads.
    #[error("the arguments have a member that could be read as `{0}`")]
    Respelt(Arc<str>),
    /// The value is not a boolean.
    #[error("its value is neither true nor false")]
    NotBoolean,
    /// The interpreter gave another error.
    #[error("{0}")]
    Other(ExecutionError),
}

/// The request that an expression is evaluated for.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    /// The principal that makes the request.
    pub principal: &'a Principal,
    /// The upstream server addressed.
    pub server: &'a ServerName,
    /// Kind of the thing requested.
    pub kind: Sort,
    /// Name, URI, template or method.
    pub name: &'a str,
    /// Arguments of the call.
    pub arguments: KnownArguments<'a>,
    /// The registry entry of the tool, if there is one.
    pub known: Option<&'a RegistryEntry>,
    /// The flow that the call belongs to; `None` if no flow is remembered, and for a question about a call that nobody
    /// makes: it is a flow that was shown nothing then.
    pub flow: Option<&'a FlowFacts>,
}

impl<'a> AccessRequest<'a> {
    /// A question about any use of a thing, of which neither the arguments nor the flow are known.
    #[must_use]
    pub const fn of_any_use(
        principal: &'a Principal,
        server: &'a ServerName,
        kind: Sort,
        name: &'a str,
        known: Option<&'a RegistryEntry>,
    ) -> Self {
        let arguments = KnownArguments::Unknown;
        Self { principal, server, kind, name, arguments, known, flow: None }
    }
}

/// The arguments of a call, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub enum KnownArguments<'a> {
    /// There is no call yet, for example while a catalog is filtered.
    Unknown,
    /// The call has no arguments.
    None,
    /// The arguments, and the budget that reading them is charged to.
    Given(Value<'a>, &'a WorkBudget),
}

impl Condition {
    /// Compiles the CEL expression `text`.
    ///
    /// # Errors
    /// If it is not valid CEL, uses a variable or function that is not available, or could cost too much.
    pub fn compile(text: &str) -> Result<Self, ConditionError> {
        if text.len() > LENGTH {
            return Err(ConditionError::Length(text.len()));
        }
        if nesting::depth(text) > NESTING {
            return Err(ConditionError::Nesting);
        }
        let program = Program::compile(text)
            .map_err(|errors| ConditionError::Syntax(syntax::told(text, &errors)))?;
        let references = program.references();
        let is_word = |name: &&&str| name.starts_with(|c: char| c.is_ascii_alphabetic());
        let functions = references.functions();
        if let Some(unknown) = functions.iter().filter(is_word).find(|f| !FUNCTIONS.contains(f)) {
            return Err(ConditionError::Function((*unknown).to_owned()));
        }
        let reads_arguments = references.has_variable("arguments");
        let reads_risk = references.has_variable("risk");
        let reads_origin = references.has_variable("origin");
        let reads_flow = reads_origin || references.has_variable("flow");
        let mut shape = ShapeCheck::default();
        shape.of(program.expression(), None)?;
        let ShapeCheck { patterns, members, paths, loops } = shape;
        let result = ResultType::of(program.expression());
        if let ResultType::Other(what) = result {
            return Err(ConditionError::NotBoolean(what));
        }
        let patterns = Arc::new(patterns);
        Ok(Self {
            program,
            reads_arguments,
            reads_risk,
            reads_flow,
            reads_origin,
            result,
            loops,
            patterns,
            members,
            paths,
        })
    }

    /// Whether the expression reads the flow that a call belongs to.
    #[must_use]
    pub const fn reads_flow(&self) -> bool {
        self.reads_flow
    }

    /// Whether the expression reads where arguments came from.
    #[must_use]
    pub const fn reads_origin(&self) -> bool {
        self.reads_origin
    }

    /// Whether the result is true or false whenever the expression can be evaluated. Otherwise it depends on the type
    /// of an argument.
    #[must_use]
    pub fn is_surely_boolean(&self) -> bool {
        self.result == ResultType::Boolean
    }

    /// What is on record about an expression that could not be evaluated because of `error`.
    pub(crate) fn fault(&self, error: &EvaluationError) -> ConditionFault {
        let reads_arguments = self.reads_arguments || self.reads_origin;
        let remedy = match reads_arguments && self.is_surely_boolean() {
            true => ConditionRemedy::Arguments,
            false => ConditionRemedy::Rule,
        };
        let missing = match error {
            // A caller chooses `k` in `arguments[arguments.k]`, so only names that the expression writes are kept.
            EvaluationError::Missing(name) => self.members.get(name.as_str()).cloned(),
            EvaluationError::Budget
            | EvaluationError::TooLong
            | EvaluationError::Respelt(_)
            | EvaluationError::NotBoolean
            | EvaluationError::Other(_) => None,
        };
        ConditionFault { remedy, missing }
    }

    /// Evaluates the expression. Reading the arguments is charged to their budget; an exhausted budget is an error.
    ///
    /// # Errors
    /// If it cannot be evaluated, or its value is not a boolean.
    pub fn evaluate(
        &self,
        subject: AccessRequest<'_>,
    ) -> Result<ConditionOutcome, EvaluationError> {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        let matched = Arc::new(AtomicUsize::new(0));
        match (subject.arguments, self.reads_arguments) {
            (KnownArguments::Unknown, true) => return Ok(ConditionOutcome::Depends),
            (KnownArguments::None, true) => context.add_variable_from_value("arguments", map([])),
            (KnownArguments::Given(value, budget), true) => {
                context.add_variable_from_value("arguments", self.arguments(value, budget)?);
            }
            (KnownArguments::Given(value, budget), false) if self.reads_origin => {
                self.check_names(value, budget)?;
            }
            (_, false) => {}
        }
        let left = match subject.arguments {
            KnownArguments::Given(_, budget) => {
                usize::try_from(budget.left()).unwrap_or(usize::MAX)
            }
            KnownArguments::Unknown | KnownArguments::None => usize::MAX,
        };
        let cost = MatchCost { spent: Arc::clone(&matched), most: left.min(MOST_MATCHED) };
        let matches = matches(Arc::clone(&self.patterns), cost);
        if context.add_function("matches", matches).is_err() {
            let error = ExecutionError::function_error("matches", "cannot be added");
            return Err(EvaluationError::Other(error));
        }
        if self.reads_flow && !add_flow(&mut context, subject) {
            return Ok(ConditionOutcome::Depends);
        }
        if self.reads_risk {
            context.add_variable_from_value("risk", risk(subject.known));
        }
        context.add_variable_from_value("principal", principal(subject.principal));
        context.add_variable_from_value("server", map([("name", text(subject.server.as_str()))]));
        // Only the variable of this kind exists: a rule that reads `tool` for a prompt fails to evaluate, and so does
        // not grant.
        let (variable, member) = variable_of(subject.kind);
        context.add_variable_from_value(variable, map([(member, text(subject.name))]));
        let came_to = self.program.execute(&context);
        if let KnownArguments::Given(_, budget) = subject.arguments
            && !budget.spend(matched.load(Ordering::Relaxed))
        {
            return Err(EvaluationError::Budget);
        }
        match came_to {
            Ok(Cel::Bool(true)) => Ok(ConditionOutcome::Holds),
            Ok(Cel::Bool(false)) => Ok(ConditionOutcome::Fails),
            Ok(_) => Err(EvaluationError::NotBoolean),
            Err(ExecutionError::NoSuchKey(name)) => Err(EvaluationError::Missing(name)),
            Err(error) => Err(EvaluationError::Other(error)),
        }
    }

    /// The arguments as the expression reads them. Reading them is charged to `budget`.
    ///
    /// # Errors
    /// If they cost or are too much, or a server could read another member as one that the expression reads.
    fn arguments(&self, value: Value<'_>, budget: &WorkBudget) -> Result<Cel, EvaluationError> {
        let length = value.span().len();
        if self.loops.count > 0 && length > LOOP_INPUT {
            return Err(EvaluationError::TooLong);
        }
        let read = length.saturating_mul(READ);
        let turns = if self.loops.count > 0 { values(value) } else { 0 };
        // An iteration that reads the arguments may scan all of them.
        let turn = if self.loops.rereads { TURN.saturating_add(read) } else { TURN };
        let turns = turns.saturating_mul(turn).saturating_mul(self.loops.count);
        if !budget.spend(read.saturating_add(turns)) {
            return Err(EvaluationError::Budget);
        }
        self.check_names(value, budget)?;
        Ok(from_json(value))
    }

    /// Checks that a server reads no other member of the arguments as one that the expression reads, by itself or in
    /// `origin`.
    fn check_names(&self, value: Value<'_>, budget: &WorkBudget) -> Result<(), EvaluationError> {
        let names = value.span().len().saturating_mul(self.paths.len());
        if !budget.spend(names) {
            return Err(EvaluationError::Budget);
        }
        match self.paths.iter().find_map(|path| respelt(value, path)) {
            Some(name) => Err(EvaluationError::Respelt(name)),
            None => Ok(()),
        }
    }
}

/// The variables that a loop brings into scope, inside those of the enclosing loops.
#[derive(Clone, Copy)]
struct LoopScope<'a> {
    inner: &'a ComprehensionExpr,
    outer: Option<&'a LoopScope<'a>>,
}

impl LoopScope<'_> {
    fn has(&self, name: &str) -> bool {
        let Self { inner, outer } = self;
        inner.iter_var == name
            || inner.iter_var2.as_deref() == Some(name)
            || inner.accu_var == name
            || outer.is_some_and(|outer| outer.has(name))
    }
}

/// What the regular expressions of one evaluation cost, in units.
struct MatchCost {
    spent: Arc<AtomicUsize>,
    most: usize,
}

/// The CEL function `matches` over the precompiled patterns. It counts its cost first; more than the most is an error.
fn matches(
    patterns: Arc<BTreeMap<String, Regex>>,
    cost: MatchCost,
) -> impl Fn(This<Arc<String>>, Arc<String>) -> Result<bool, ExecutionError> + Send + Sync + 'static
{
    move |This(text), pattern| {
        let units = text.len().saturating_mul(MATCH);
        let before = cost.spent.fetch_add(units, Ordering::Relaxed);
        let unknown = || ExecutionError::function_error("matches", "the pattern is not a literal");
        let pattern = patterns.get(pattern.as_str()).ok_or_else(unknown)?;
        if before.saturating_add(units) > cost.most {
            return Err(ExecutionError::function_error("matches", "too much text to look at"));
        }
        Ok(pattern.is_match(&text))
    }
}

/// Validates the shape of an expression before its first use, compiles its patterns, and collects the names of members.
#[derive(Default)]
struct ShapeCheck {
    patterns: BTreeMap<String, Regex>,
    members: BTreeSet<Arc<str>>,
    /// The places in the arguments that the expression reads.
    paths: BTreeSet<Vec<ArgumentStep>>,
    loops: Loops,
}

/// The loops of an expression, none of which is nested.
#[derive(Clone, Copy, Debug, Default)]
struct Loops {
    count: usize,
    /// Whether the body of a loop reads `arguments`, and not only the loop variable.
    rereads: bool,
}

impl ShapeCheck {
    /// The nesting depth of loops, or why the shape is rejected.
    ///
    /// INVARIANT: the parser bounds the depth of an expression, so the recursion is bounded too.
    fn of(
        &mut self,
        expression: &IdedExpr,
        scope: Option<&LoopScope<'_>>,
    ) -> Result<usize, ConditionError> {
        self.paths.extend(argument_path(expression, scope).filter(|path| !path.is_empty()));
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(0),
            Expr::Ident(name) => {
                let known =
                    VARIABLES.contains(&name.as_str()) || scope.is_some_and(|s| s.has(name));
                self.loops.rereads |= scope.is_some() && name == "arguments";
                known.then_some(0).ok_or_else(|| ConditionError::Variable(name.clone()))
            }
            Expr::Select(select) => {
                self.members.insert(select.field.as_str().into());
                self.of(&select.operand, scope)
            }
            Expr::List(list) => self.deepest(&list.elements, scope),
            Expr::Call(call) => {
                if call.func_name == "matches" {
                    self.pattern(call.args.last())?;
                }
                self.members.extend(member_of(call));
                self.deepest(call.target.iter().map(AsRef::as_ref).chain(&call.args), scope)
            }
            Expr::Map(map) => self.deepest(map.entries.iter().flat_map(|e| parts(&e.expr)), scope),
            Expr::Struct(made) => {
                self.deepest(made.entries.iter().flat_map(|e| parts(&e.expr)), scope)
            }
            Expr::Comprehension(inner) => {
                let within = LoopScope { inner, outer: scope };
                let body = [&inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result];
                if self.deepest(body, Some(&within))? > 0 {
                    return Err(ConditionError::NestedLoop);
                }
                self.loops.count += 1;
                Ok(self.of(&inner.iter_range, scope)?.max(1))
            }
        }
    }

    fn deepest<'a>(
        &mut self,
        parts: impl IntoIterator<Item = &'a IdedExpr>,
        scope: Option<&LoopScope<'_>>,
    ) -> Result<usize, ConditionError> {
        let mut deepest = 0;
        for part in parts {
            deepest = deepest.max(self.of(part, scope)?);
        }
        Ok(deepest)
    }

    /// Compiles the pattern of a call of `matches`, which has to be a literal.
    fn pattern(&mut self, argument: Option<&IdedExpr>) -> Result<(), ConditionError> {
        let literal = argument.and_then(|argument| literal_text(&argument.expr));
        let pattern = literal.ok_or(ConditionError::Pattern)?.to_owned();
        if self.patterns.contains_key(&pattern) {
            return Ok(());
        }
        let compiled =
            RegexBuilder::new(&pattern).size_limit(PATTERN).dfa_size_limit(PATTERN).build();
        match compiled {
            Ok(compiled) => {
                self.patterns.insert(pattern, compiled);
                Ok(())
            }
            Err(error) => {
                let reason = one_line(&error.to_string());
                Err(ConditionError::Regex { pattern, reason })
            }
        }
    }
}

/// One step from a value of the arguments to a value within it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ArgumentStep {
    /// To the member of this name.
    Member(Arc<str>),
    /// To any item or member: which one is known when the expression is evaluated.
    Any,
    /// To the value itself, or to any value within it: a loop has made a list of parts of it.
    Below,
}

/// The place in the arguments that an expression names: `arguments.a['b']`, `arguments.a[0].b`, `'a' in arguments`,
/// `origin.a`, or `f.b` in a loop over `arguments.a`. Empty for the arguments themselves, and `None` for anything else.
///
/// INVARIANT: the parser bounds the depth of an expression, so the recursion is bounded too.
fn argument_path(
    expression: &IdedExpr,
    scope: Option<&LoopScope<'_>>,
) -> Option<Vec<ArgumentStep>> {
    let (around, step) = match &expression.expr {
        Expr::Ident(name) => return variable_path(name, scope),
        Expr::Select(select) => {
            (&*select.operand, ArgumentStep::Member(select.field.as_str().into()))
        }
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let step = member_of(call).map_or(ArgumentStep::Any, ArgumentStep::Member);
            (call.args.first()?, step)
        }
        Expr::Call(call) if call.func_name == operators::IN => {
            let name = literal_text(&call.args.first()?.expr)?;
            (call.args.get(1)?, ArgumentStep::Member(name.into()))
        }
        Expr::Comprehension(inner) => return made_path(inner, scope),
        Expr::Call(_)
        | Expr::Unspecified
        | Expr::Literal(_)
        | Expr::List(_)
        | Expr::Map(_)
        | Expr::Struct(_) => return None,
    };
    let mut path = argument_path(around, scope)?;
    add_step(&mut path, step);
    Some(path)
}

/// Adds a step to a path. Within any depth, a further step to any value leads nowhere else, and would only be searched for
/// again.
fn add_step(path: &mut Vec<ArgumentStep>, step: ArgumentStep) {
    let is_within = path.last() == Some(&ArgumentStep::Below);
    if !is_within || matches!(step, ArgumentStep::Member(_)) {
        path.push(step);
    }
}

/// The place in the arguments of the list that a loop makes: that of the list that it filters, or below it if it makes
/// something else of the items.
fn made_path(
    inner: &ComprehensionExpr,
    scope: Option<&LoopScope<'_>>,
) -> Option<Vec<ArgumentStep>> {
    let mut path = argument_path(&inner.iter_range, scope)?;
    let filters = appended(&inner.loop_step)
        .is_some_and(|item| matches!(&item.expr, Expr::Ident(name) if *name == inner.iter_var));
    if !filters {
        add_step(&mut path, ArgumentStep::Below);
    }
    Some(path)
}

/// What a step of a loop appends to the list that it makes.
///
/// INVARIANT: the parser bounds the depth of an expression, so the recursion is bounded too.
fn appended(step: &IdedExpr) -> Option<&IdedExpr> {
    match &step.expr {
        Expr::List(list) => list.elements.first(),
        Expr::Call(call) => call.args.iter().find_map(appended),
        Expr::Unspecified
        | Expr::Literal(_)
        | Expr::Ident(_)
        | Expr::Select(_)
        | Expr::Map(_)
        | Expr::Struct(_)
        | Expr::Comprehension(_) => None,
    }
}

/// The place in the arguments of the variable `name`.
fn variable_path(name: &str, scope: Option<&LoopScope<'_>>) -> Option<Vec<ArgumentStep>> {
    let Some(LoopScope { inner, outer }) = scope else {
        // The members of `origin` have the names of the arguments.
        return matches!(name, "arguments" | "origin").then(Vec::new);
    };
    if inner.iter_var == name || inner.iter_var2.as_deref() == Some(name) {
        let mut path = argument_path(&inner.iter_range, *outer)?;
        add_step(&mut path, ArgumentStep::Any);
        return Some(path);
    }
    // The result so far.
    if inner.accu_var == name {
        return None;
    }
    variable_path(name, *outer)
}

/// The first name of `path` for which a server may take another member at its place.
///
/// INVARIANT: the parser bounds the depth of an expression, and so the length of a path and the recursion.
fn respelt(value: Value<'_>, path: &[ArgumentStep]) -> Option<Arc<str>> {
    let (step, rest) = path.split_first()?;
    match step {
        ArgumentStep::Member(name) => {
            if value.members().any(|(member, _)| spelling::is_taken_for(&member, name)) {
                return Some(Arc::clone(name));
            }
            respelt(value.get(name)?, rest)
        }
        ArgumentStep::Any => {
            let members = value.members().map(|(_, member)| member);
            value.items().chain(members).find_map(|inner| respelt(inner, rest))
        }
        ArgumentStep::Below => {
            let mut within = value.items().chain(value.members().map(|(_, member)| member));
            respelt(value, rest).or_else(|| within.find_map(|inner| respelt(inner, path)))
        }
    }
}

/// The name in `x['name']`.
fn member_of(call: &CallExpr) -> Option<Arc<str>> {
    let index = (call.func_name == operators::INDEX).then_some(&call.args.last()?.expr)?;
    literal_text(index).map(Into::into)
}

/// The text of a literal string.
fn literal_text(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        Expr::Literal(_)
        | Expr::Unspecified
        | Expr::Ident(_)
        | Expr::Select(_)
        | Expr::List(_)
        | Expr::Call(_)
        | Expr::Map(_)
        | Expr::Struct(_)
        | Expr::Comprehension(_) => None,
    }
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text(text: &str) -> Cel {
    Cel::String(Arc::new(text.to_owned()))
}

fn map<'a>(members: impl IntoIterator<Item = (&'a str, Cel)>) -> Cel {
    collect(members.into_iter().map(|(key, value)| (key.to_owned(), value)))
}

#[expect(clippy::disallowed_types, reason = "the type CEL asks for; nothing here iterates it")]
fn collect(members: impl Iterator<Item = (String, Cel)>) -> Cel {
    let members = members.map(|(key, value)| (Key::String(Arc::new(key)), value));
    let map: std::collections::HashMap<Key, Cel> = members.collect();
    Cel::Map(cel::objects::Map { map: Arc::new(map) })
}

fn principal(principal: &Principal) -> Cel {
    let groups = principal.groups.iter().map(|group| text(group.as_str())).collect();
    let claims = &principal.claims;
    let texts = |texts: Vec<&str>| Cel::List(Arc::new(texts.into_iter().map(text).collect()));
    let maybe = |value: Option<&str>| text(value.unwrap_or_default());
    map([
        ("id", text(principal.id.as_str())),
        ("groups", Cel::List(Arc::new(groups))),
        ("roles", texts(claims.roles.iter().map(RoleName::as_str).collect())),
        ("scopes", texts(claims.scopes.iter().map(Scope::as_str).collect())),
        ("actors", texts(claims.actors.iter().map(|actor| &**actor).collect())),
        ("issuer", maybe(claims.issuer.as_deref())),
        ("subject", maybe(claims.subject.as_deref())),
        ("client", maybe(claims.client.as_ref().map(ClientId::as_str))),
        ("certificate", maybe(claims.certificate.as_deref())),
        ("proof", text(claims.proof.as_str())),
    ])
}

/// The variable of the thing requested, and its member.
const fn variable_of(kind: Sort) -> (&'static str, &'static str) {
    match kind {
        Sort::Tool => ("tool", "name"),
        Sort::Prompt => ("prompt", "name"),
        Sort::Resource | Sort::Template => ("resource", "uri"),
        Sort::Skill => ("skill", "uri"),
        Sort::Method => ("method", "name"),
    }
}

/// Adds `flow` and `origin`, unless there is no call yet: the list is the same in every flow, and the flow decides about
/// the call.
fn add_flow(context: &mut Context<'_, '_>, subject: AccessRequest<'_>) -> bool {
    if matches!(subject.arguments, KnownArguments::Unknown) {
        return false;
    }
    let labels = subject.flow.map(|facts| facts.labels).unwrap_or_default();
    let origins = subject.flow.map(|facts| &facts.origins[..]).unwrap_or_default();
    let flow = map([
        ("untrusted", Cel::Bool(labels.is_untrusted())),
        ("confidential", Cel::Bool(labels.is_confidential())),
    ]);
    let origin = map(origins.iter().map(|(name, origin)| (&**name, text(origin.as_str()))));
    context.add_variable_from_value("flow", flow);
    context.add_variable_from_value("origin", origin);
    true
}

/// The registry entry as a CEL map. For an unregistered tool, `effect` is `unknown`, so neither `read` nor `write`
/// matches.
fn risk(known: Option<&RegistryEntry>) -> Cel {
    let unknown = RegistryEntry::default();
    let registered = known.is_some();
    let known = known.unwrap_or(&unknown);
    let maybe = |value: &Option<Box<str>>| text(value.as_deref().unwrap_or_default());
    map([
        ("registered", Cel::Bool(registered)),
        ("effect", text(known.effect.map_or("unknown", ToolEffect::as_str))),
        ("dataClass", text(known.data_class.map_or("unknown", DataClass::as_str))),
        ("owner", maybe(&known.owner)),
        ("version", maybe(&known.version)),
        ("resourceScope", maybe(&known.resource_scope)),
        ("approvalRequired", Cel::Bool(known.approval_required)),
        ("idempotent", Cel::Bool(known.idempotent)),
        ("retries", Cel::Int(known.retries.into())),
    ])
}

/// The number of values nested in `value`, including itself: an upper bound on the iterations of a loop over a part
/// of it.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn values(value: Value<'_>) -> usize {
    let members = value.members().map(|(_, member)| values(member));
    1 + members.chain(value.items().map(values)).sum::<usize>()
}

/// Converts JSON to CEL: an integer that fits is an `int`, else a `uint`, else a `double`.
fn from_json(value: Value<'_>) -> Cel {
    match value.kind() {
        JsonKind::Null => Cel::Null,
        JsonKind::Boolean => Cel::Bool(value.raw() == "true"),
        JsonKind::Number => {
            let raw = value.raw();
            raw.parse().map(Cel::Int).or_else(|_| raw.parse().map(Cel::UInt)).unwrap_or_else(|_| {
                // A number that no double can hold: comparing it is an error or false, and neither grants.
                Cel::Float(value.as_f64().unwrap_or(f64::NAN))
            })
        }
        JsonKind::Plain | JsonKind::Escaped => {
            Cel::String(Arc::new(value.as_str().unwrap_or_default().into_owned()))
        }
        JsonKind::Array => {
            // Allocated once: while a list grows that is full of small values, it would be in memory twice.
            let mut items = Vec::with_capacity(value.items().count());
            items.extend(value.items().map(from_json));
            Cel::List(Arc::new(items))
        }
        JsonKind::Object => {
            collect(value.members().map(|(key, value)| (key.into_owned(), from_json(value))))
        }
    }
}

#[cfg(test)]
mod tests;
