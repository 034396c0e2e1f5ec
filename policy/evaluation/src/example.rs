//! What is expected of the definitions: one request, the tools that it is about, and the call that follows.

use json::Fragment;
use policy::flow::label::FlowLabels;

use crate::tool::ToolName;

/// An example of a request.
#[derive(Clone, Debug)]
pub struct Example {
    /// Its name in the report.
    pub id: String,
    /// The file that it stands in.
    pub file: Box<str>,
    /// The line of the file, from 1.
    pub line: usize,
    /// The request in a person's words.
    pub query: String,
    /// The tools that it is about: one, or several of equal function. Never empty; the call is one of the first.
    pub expected: Vec<ToolName>,
    /// Tools that must not be ranked above the expected ones.
    pub forbidden: Vec<ToolName>,
    /// The arguments of the call that follows.
    pub arguments: Option<Fragment>,
    /// The same arguments with one of them as it must not be accepted.
    pub forbidden_arguments: Vec<ForbiddenArgument>,
    /// The decision that is expected about the call, if a configuration is to decide.
    pub outcome: Option<ExpectedOutcome>,
}

/// Arguments that must be refused because of one of them.
#[derive(Clone, Debug)]
pub struct ForbiddenArgument {
    /// The name of the argument that has a forbidden value.
    pub name: Box<str>,
    /// All arguments of the call.
    pub arguments: Fragment,
}

/// A decision that is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedOutcome {
    /// The id of the caller.
    pub principal: String,
    /// What the caller's flow was shown before.
    pub flow: FlowLabels,
    /// Whether the call is expected to be allowed.
    pub allowed: bool,
    /// The reason code of the denial, if a certain one is expected.
    pub reason: Option<String>,
}
