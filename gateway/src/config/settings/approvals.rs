//! Compiles the `approvals` section: who is asked about calls that need an approval, and within which bounds.

use std::path::PathBuf;
use std::time::Duration;

use super::compiler::SettingsCompiler;
use super::limit_table::{KIB, MIB};
use super::raw::{Approver, RawApprovals, RawWebhook};
use super::{OpsListener, SecretRef, ServiceEndpoint};

/// Longest time for which a question can be answered: its call waits as long, and its arguments are kept.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How people are asked about calls that need an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// Whether the user of the client can answer.
    pub asks_client: bool,
    /// Whether an operator can answer.
    pub asks_operator: bool,
    /// How long a question can be answered, and an approval be used.
    pub timeout: Duration,
    /// Most questions of one principal that wait for an answer.
    pub per_principal: usize,
    /// The time in which `per_window` questions may be asked.
    pub window: Duration,
    /// Most questions of one principal about one server in `window`.
    pub per_window: u32,
    /// Most questions and unused approvals.
    pub open: usize,
    /// Most bytes of their arguments.
    pub memory: usize,
    /// Most bytes of the arguments in one question, as they are shown.
    pub argument_bytes: usize,
}

/// The default and the maximum time limit of a request to the webhook.
const DEADLINE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

/// A web service that gets signed notices.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// The URL, and how the gateway connects to it.
    pub place: ServiceEndpoint,
    /// The secret with which notices are signed.
    pub secret: SecretRef,
    /// How long the service may take to answer.
    pub timeout: Duration,
}

impl Default for ApprovalSettings {
    fn default() -> Self {
        Self {
            asks_client: true,
            asks_operator: false,
            timeout: Duration::from_secs(300),
            per_principal: 10,
            window: Duration::from_secs(600),
            per_window: 20,
            open: 1000,
            memory: 8 * MIB,
            argument_bytes: 16 * KIB,
        }
    }
}

impl SettingsCompiler<'_> {
    pub(super) fn approval_file(&mut self, raw: Option<&str>) -> Option<PathBuf> {
        let file = self.of_process(raw?);
        // Programs of servers must neither read nor write it.
        self.uses.files.push(file.clone());
        Some(file)
    }

    pub(super) fn webhook(
        &mut self,
        raw: RawWebhook,
        approvals: &ApprovalSettings,
    ) -> Option<WebhookSettings> {
        let at = "/approvals/webhook";
        if !approvals.asks_operator {
            let help = "add `operator` to `ask`, and `ops.token`; or remove the webhook";
            self.report(at, "who is told of a question could not answer it", help);
        }
        let url = self.guarded_url(&format!("{at}/url"), &raw.url);
        let way = self.way(&format!("{at}/connection"), &raw.connection);
        let secret = self.secret(&format!("{at}/secret"), raw.secret);
        let (usual, most) = DEADLINE;
        let timeout =
            self.time_within(&format!("{at}/timeout"), raw.timeout.as_deref(), usual, most);
        Some(WebhookSettings {
            place: ServiceEndpoint { url: url?, way },
            secret: secret?,
            timeout,
        })
    }

    pub(super) fn approvals(
        &mut self,
        raw: &RawApprovals,
        ops: Option<&OpsListener>,
    ) -> ApprovalSettings {
        let usual = ApprovalSettings::default();
        let has_token = ops.is_some_and(|ops| ops.token.is_some());
        let asks = |approver| raw.ask.as_ref().is_none_or(|asked| asked.contains(&approver));
        if raw.ask.as_ref().is_some_and(Vec::is_empty) {
            let help = "name `client` or `operator`, or leave `ask` out";
            self.report("/approvals/ask", "nobody could answer a question", help);
        }
        if raw.ask.is_some() && asks(Approver::Operator) && !has_token {
            let help = "add `ops: {address: 127.0.0.1:9901, token: {fromEnv: OPS_TOKEN}}`, or leave `operator` out";
            let message = "operators answer through the admin API, which needs `ops.token`";
            self.report("/approvals/ask", message, help);
        }
        let at = "/approvals/timeout";
        let timeout = self.time(at, raw.timeout.as_deref()).unwrap_or(usual.timeout);
        if timeout > LONGEST {
            self.report(at, "a call cannot wait for so long", "give at most `24h`");
        }
        for (key, count) in [
            ("perPrincipal", raw.per_principal),
            ("perWindow", raw.per_window.map(|count| count as usize)),
            ("open", raw.open),
        ] {
            if count == Some(0) {
                let help = "write 1 or more; to deny such calls, remove the rule that allows them";
                self.report(&format!("/approvals/{key}"), "nobody could be asked anything", help);
            }
        }
        let (size, memory) = (raw.argument_bytes.as_deref(), raw.memory.as_deref());
        ApprovalSettings {
            asks_client: asks(Approver::Client),
            asks_operator: asks(Approver::Operator) && has_token,
            timeout,
            per_principal: raw.per_principal.unwrap_or(usual.per_principal),
            window: self.time("/approvals/window", raw.window.as_deref()).unwrap_or(usual.window),
            per_window: raw.per_window.unwrap_or(usual.per_window),
            open: raw.open.unwrap_or(usual.open),
            memory: self.size("/approvals/memory", memory).unwrap_or(usual.memory),
            argument_bytes: self
                .size("/approvals/argumentBytes", size)
                .unwrap_or(usual.argument_bytes),
        }
    }
}
