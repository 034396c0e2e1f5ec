//! Histograms by what was done: made when they are first needed, found without a lock, and never more
//! than was promised.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{Histogram, Labels, Operated, Value};
use crate::protocol::method;

/// Most histograms of one name: what comes after that is counted together.
const MOST: usize = 1000;
/// What stands for what is not configured.
const OTHER: &str = "_OTHER";

/// The labels of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Operation {
    method: &'static str,
    server: Option<Box<str>>,
    /// A name that is not configured is `Some(None)`.
    name: Option<Option<Arc<str>>>,
    is_prompt: bool,
    version: Option<&'static str>,
    error: Option<&'static str>,
    code: Option<i32>,
    is_overflow: bool,
}

impl Operation {
    pub(super) fn new(what: &Operated<'_>, name: Option<Option<Arc<str>>>) -> Self {
        let method = what.method.map_or(OTHER, method::clamped);
        Self {
            method,
            server: what.server.map(Into::into),
            name: name.filter(|_| matches!(method, method::TOOLS_CALL | method::PROMPTS_GET)),
            is_prompt: method == method::PROMPTS_GET,
            version: what.version,
            error: what.error,
            // Only codes that mean something everywhere: a server chooses its own.
            code: what.code.filter(|code| (-32_768..=-32_000).contains(code)),
            is_overflow: false,
        }
    }

    fn labels(&self) -> Labels {
        if self.is_overflow {
            return vec![("otel.metric.overflow", "true".into())];
        }
        let mut labels: Labels = vec![("mcp.method.name", self.method.into())];
        if let Some(name) = &self.name {
            let key = if self.is_prompt { "gen_ai.prompt.name" } else { "gen_ai.tool.name" };
            labels.push((key, name.as_deref().unwrap_or(OTHER).into()));
            if !self.is_prompt {
                labels.push(("gen_ai.operation.name", "execute_tool".into()));
            }
        }
        if let Some(server) = &self.server {
            labels.push(("portcullis.server", server.clone()));
        }
        if let Some(version) = self.version {
            labels.push(("mcp.protocol.version", version.into()));
        }
        if let Some(error) = self.error {
            labels.push(("error.type", error.into()));
        }
        if let Some(code) = self.code {
            labels.push(("rpc.response.status_code", code.to_string().into()));
        }
        labels
    }
}

/// Histograms by operation.
#[derive(Debug, Default)]
pub struct Series(ArcSwap<HashMap<Operation, Arc<Histogram>>>);

impl Series {
    /// The histogram of `operation`.
    pub(super) fn get(&self, operation: Operation) -> Arc<Histogram> {
        if let Some(known) = self.0.load().get(&operation) {
            return Arc::clone(known);
        }
        let mut operation = operation;
        if self.0.load().len() >= MOST {
            operation = Operation { is_overflow: true, ..Operation::default() };
        }
        let made = Arc::new(Histogram::operation());
        // It is copied when something new comes, which is rare, and only read otherwise.
        self.0.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.entry(operation.clone()).or_insert_with(|| Arc::clone(&made));
            known
        });
        self.0.load().get(&operation).cloned().unwrap_or(made)
    }

    pub(super) fn read(&self) -> Vec<(Labels, Value)> {
        let known = self.0.load();
        let mut points: Vec<_> =
            known.iter().map(|(operation, cell)| (operation.labels(), cell.read())).collect();
        points.sort_by(|(one, _), (other, _)| one.cmp(other));
        points
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Operation, Series};
    use crate::metrics::Operated;
    use std::time::Duration;

    #[test]
    fn whatever_a_peer_says_there_are_only_so_many() {
        let series = Series::default();
        for n in 0..i32::try_from(MOST).unwrap() + 50 {
            let server = n.to_string();
            let what = Operated {
                method: Some("x/y"),
                name: Some("z"),
                server: Some(&server),
                version: None,
                error: None,
                code: Some(n),
            };
            series.get(Operation::new(&what, Some(None))).observe(Duration::from_millis(1));
        }
        let points = series.read();
        assert_eq!(points.len(), MOST + 1);
        assert!(points.iter().any(|(labels, _)| labels[0].0 == "otel.metric.overflow"));
        let first = &points[0].0;
        assert_eq!((first[0].0, &*first[0].1), ("mcp.method.name", "_OTHER"));
        assert_eq!(first[1].0, "portcullis.server", "no name, no code of its own");
    }
}
