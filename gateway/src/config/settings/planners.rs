//! Checks that the routes of two planners and the channel between them fit together.

use policy::engine::pipeline::Policy;
use policy::flow::guard::FlowMode;
use policy::flow::planner::Planner;

use super::RouteSettings;
use super::compiler::{DefiningSection, SettingsCompiler};

impl SettingsCompiler<'_> {
    /// Reports routes of planners without flow control, a channel that has no two ends, and planners that share no server.
    pub(super) fn planners(&mut self, routes: &[RouteSettings], policy: Option<&Policy>) {
        let Some(policy) = policy else { return };
        let of = |planner| move |route: &&RouteSettings| route.planner == Some(planner);
        let (trusted, untrusted) = (of(Planner::Trusted), of(Planner::Untrusted));
        if policy.flow().mode() == FlowMode::Off {
            let planned = routes.iter().enumerate().filter(|(_, route)| route.planner.is_some());
            for (n, _) in planned {
                let help = "set `policy.flow.mode` to `observe`, `ask` or `deny`, and label the tools there";
                let message = "a route of a planner needs flow control";
                self.report(&format!("/routes/{n}/planner"), message, help);
            }
        }
        let has_trusted = routes.iter().any(|route| trusted(&route));
        let has_untrusted = routes.iter().any(|route| untrusted(&route));
        let has_two_ends = has_trusted && has_untrusted;
        if !has_two_ends && !policy.flow().channel().is_empty() {
            let help = "add a route with `planner: trusted` and one with `planner: untrusted`, or remove the channel";
            self.report("/policy/flow/channel", "this channel does not have two ends", help);
        }
        let shared = routes.iter().filter(trusted).any(|one| {
            let mut others = routes.iter().filter(untrusted);
            others.any(|other| one.servers.iter().any(|server| other.servers.contains(server)))
        });
        if has_two_ends && !shared && !self.is_doubtful(DefiningSection::Servers) {
            let first = routes.iter().position(|route| trusted(&route)).unwrap_or_default();
            let help = "name a server in the `servers` of both: the untrusted planner reads what is kept from the trusted one";
            let message = "the two planners have no server in common";
            self.report(&format!("/routes/{first}/servers"), message, help);
        }
    }
}
