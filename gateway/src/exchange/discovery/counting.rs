//! What calls of `find_tools` and `describe_tool` count against: the rate of the route, equal calls, and budgets.

use json::Fragment;
use policy::definition::offer::ItemKind;
use policy::rules::control::Control;

use crate::audit::Record;
use crate::config::call_budget::BudgetedCall;
use crate::edge::decode::UseOperation;
use crate::edge::failure::Failure;
use crate::exchange::call::comparable;
use crate::exchange::{DecodedRequest, Gateway};
use crate::mcp::discovery_tools::DiscoveryTool;
use crate::session::call_budgets::BudgetDebit;
use crate::session::rate_limiter::WithinRate;

impl Gateway {
    /// Counts a call of `find_tools` or `describe_tool` as the call of a tool of no server.
    ///
    /// # Errors
    /// If there were too many.
    pub(super) fn counted_discovery(
        &self,
        arrived: &DecodedRequest,
        tool: DiscoveryTool,
        ask: &UseOperation,
        record: &mut Record,
    ) -> Result<BudgetDebit, Failure> {
        let given = ask.arguments.as_ref().map(Fragment::value);
        // No server has the name of a path.
        let route = &*arrived.route.path;
        if let Some(rate) = self.repeat_limit {
            self.count_equal(arrived, [route, tool.name()], &comparable(given), rate)?;
        }
        let rate = arrived.route.discovery.as_ref().and_then(|one| one.settings.rate);
        let _within = match rate {
            Some(rate) => {
                record.controls_run.note(Control::Rates);
                let caller = arrived.caller.principal.id.as_str().into();
                let key = (caller, route.into(), "".into());
                self.rate_limiter.take(key, rate, self.clock.instant()).map_err(Failure::Rate)?
            }
            None => WithinRate::unlimited(),
        };
        if self.budgets.is_empty() {
            return Ok(BudgetDebit::default());
        }
        let call = BudgetedCall {
            principal: &arrived.caller.principal,
            server: None,
            kind: ItemKind::Tool,
            name: tool.name(),
            calls: 1,
            bytes: given.map_or(0, |given| given.raw().len()) as u64,
            cost: 1,
        };
        self.take_budgets(&call, record)
    }
}
