//! Says in the log which failed requests the sandbox of the server's program explains: the error goes to the client, and
//! says no more than that access was denied.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use json::Value;
use policy_core::subject::name::ServerName;

use super::server_log::ServerLog;
use crate::base::log_limit::LogLimit;
use crate::base::masking;
use crate::base::task::Tasks;
use crate::process::sandbox::{DenialAdvice, DeniedPathFinder, SandboxPlan};

/// At most one line about what a sandbox denies for one reason, such as one folder, is logged in this time.
const DENIAL: Duration = Duration::from_secs(10);
/// The number of failed requests in a second whose denied path is looked up, which inspects files; and in a burst.
const DENIAL_LOOKUPS: (u32, u32) = (2, 16);
/// The number of texts of a failed result that are searched for a denied path, and of lines in each.
const DENIAL_TEXTS: usize = 4;
const DENIAL_LINES: usize = 32;
/// Longest of these texts that is searched, in bytes of JSON: the search is made on a serving thread.
const DENIAL_BYTES: usize = 16 * 1024;

/// A request that the server of a program has failed, for the log.
#[derive(Clone, Copy, Debug)]
pub enum FailedRequest<'a> {
    /// A call of this tool.
    Tool(&'a str),
    /// The request of this list.
    List(&'static str),
    /// Another request.
    Other,
}

/// Explains failed requests by the sandbox of a program.
#[derive(Debug)]
pub(super) struct SandboxDenials {
    server: ServerName,
    plan: Arc<SandboxPlan>,
    /// Knows when the program was started.
    server_log: Arc<ServerLog>,
    tasks: Tasks,
    /// Limits how often a path that may have been denied is looked up.
    lookups: LogLimit,
    /// Limits the log lines by the reason. There are as many reasons as there are folders that hold files of the
    /// gateway, and a few more.
    lines: Arc<Mutex<BTreeMap<String, LogLimit>>>,
}

impl SandboxDenials {
    pub(super) fn new(
        server: ServerName,
        plan: SandboxPlan,
        server_log: Arc<ServerLog>,
        tasks: Tasks,
    ) -> Self {
        let lookups = LogLimit::new(DENIAL_LOOKUPS.0, DENIAL_LOOKUPS.1);
        Self { server, plan: Arc::new(plan), server_log, tasks, lookups, lines: Arc::default() }
    }

    /// Looks for a path that the sandbox denies in `said`, a failed result or an error, and logs the reason.
    pub(super) fn explain(&self, request: FailedRequest<'_>, said: Value<'_>, now: Instant) {
        let Some(path) = denied_path(said) else { return };
        if self.lookups.allow(now).is_none() {
            return;
        }
        let (tool, list) = match request {
            FailedRequest::Tool(tool) => {
                (Some(masking::secrets(tool).escape_debug().to_string()), None)
            }
            FailedRequest::List(list) => (None, Some(list)),
            FailedRequest::Other => (None, None),
        };
        let (server, plan, lines) =
            (self.server.clone(), Arc::clone(&self.plan), Arc::clone(&self.lines));
        let start = self.server_log.program_start();
        self.tasks.spawn(async move {
            // It looks at files.
            let denied = tokio::task::spawn_blocking(move || plan.closes(&path, start)).await;
            let Some(denied) = denied.ok().flatten() else { return };
            let DenialAdvice { why, mend } = denied.at_a_call();
            let allowed = {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                let limit = lines.entry(why.clone()).or_insert_with(|| LogLimit::every(DENIAL));
                limit.allow(now)
            };
            let Some(suppressed) = allowed else { return };
            tracing::warn!(
                event = "sandbox.denied", %server, tool, list, why = %why, mend = %mend, suppressed,
                "request failed: the sandbox of the server denied a file"
            );
        });
    }
}

/// The path to which access was denied, as the texts of a failed result report it, or the message and the data of an
/// error.
fn denied_path(said: Value<'_>) -> Option<PathBuf> {
    let mut finder = DeniedPathFinder::default();
    let content = said.get("content").into_iter().flat_map(Value::items).take(DENIAL_TEXTS);
    let texts = content.filter_map(|item| item.get("text"));
    let error = ["message", "data"].into_iter().filter_map(|name| said.get(name));
    for text in texts.chain(error).filter(|text| text.raw().len() <= DENIAL_BYTES) {
        let text = text.as_str().unwrap_or_default();
        text.lines().take(DENIAL_LINES).for_each(|line| finder.read(line));
    }
    finder.path()
}
