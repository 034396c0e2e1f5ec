//! The line that a record leaves in the log: its members, and how each is written.

use std::fmt::Display;
use std::time::Instant;

use json::write_ascii;
use policy::definition::offer::ItemKind;
use policy::rules::decision::Effect;
use policy_core::subject::name::ClientId;
use policy_core::subject::principal::{Claims, Principal, ProofOfPossession};

use super::{
    CERTIFICATE, OAUTH, Record, SCHEMA, detections, excerpt, foreign, list, micros, number, plain,
    some,
};
use crate::audit::captured::Excerpt;
use crate::mcp::discovery_tools::DiscoveryTool;
use crate::mcp::protocol::ProtocolVersion;
use crate::mcp::wire::{Id, Object};
use crate::metrics::credential_check::CredentialCheck;
use crate::metrics::outcome::ExchangeEnd;
use crate::metrics::selection_outcome::SelectionOutcome;

/// A record at the moment when a line of it is written.
pub(super) struct ExchangeLine<'a> {
    pub(super) record: &'a Record,
    /// The id of the chain that the line belongs to.
    pub(super) chain: &'a str,
    /// The type of the line.
    pub(super) event: &'a str,
    /// How and when the exchange ended; `None` while it goes on.
    pub(super) end: Option<(ExchangeEnd, Instant)>,
}

/// Writes a member of a line under its name, unless the record has nothing to say there.
type MemberWriter = fn(&ExchangeLine<'_>, &mut Object<'_>, &'static str);

/// The members of a line, sorted by name: the canonical form (RFC 8785) except for escapes.
const MEMBERS: &[(&str, MemberWriter)] = &[
    ("actors", |of, line, key| {
        each(line, key, of.claims().map_or(&[], |claims| &claims.actors));
    }),
    ("approval", |of, line, key| foreign(line, key, of.record.approval.as_deref())),
    ("argumentDigest", |of, line, key| {
        foreign(line, key, of.record.argument_digest.as_deref());
    }),
    ("arguments", |of, line, key| excerpt(line, key, of.arguments())),
    ("budget", |of, line, key| foreign(line, key, of.record.budget.as_deref())),
    ("bytesIn", |of, line, key| count(line, key, of.end.map(|_| of.record.bytes_in))),
    ("bytesOut", |of, line, key| count(line, key, of.end.map(|_| of.record.bytes_out))),
    ("certificate", |of, line, key| {
        foreign(line, key, of.claims().and_then(|claims| claims.certificate.as_deref()));
    }),
    ("chain", |of, line, key| foreign(line, key, Some(of.chain))),
    ("client", |of, line, key| {
        let client = of.claims().and_then(|claims| claims.client.as_ref());
        foreign(line, key, client.map(ClientId::as_str));
    }),
    ("code", |of, line, key| {
        if let Some(code) = of.ending().and_then(|ending| ending.code) {
            line.ours(key).extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
        }
    }),
    ("cut", |of, line, key| {
        let parts = [("arguments", of.arguments()), ("result", of.result())];
        let cut = parts.into_iter().filter(|(_, part)| part.is_some_and(|part| part.cut));
        some(line, key, cut.map(|(name, _)| name));
    }),
    ("decision", |of, line, key| {
        if let Some(decision) = of.record.decision() {
            let allowed = matches!(decision.effect, Effect::Allow(_));
            plain(line, key, if allowed { b"allow" } else { b"deny" });
        }
    }),
    ("definition", |of, line, key| {
        if let Some(definition) = &of.record.texts().definition {
            plain(line, key, definition.as_bytes());
        }
    }),
    ("detail", |of, line, key| {
        let detail = of.ending().and_then(|ending| ending.detail);
        foreign(line, key, detail.map(CredentialCheck::code));
    }),
    ("detections", |of, line, key| {
        let decided = of.record.decision().map_or(&[][..], |decision| &decision.findings);
        let heard = of.end.map_or(&[][..], |_| &of.record.server_findings);
        let decided = decided.iter().map(|finding| ("findings", finding));
        detections(line, key, decided.chain(heard.iter().map(|finding| ("found", finding))));
    }),
    ("durationMicros", durations),
    ("era", |of, line, key| {
        foreign(line, key, of.record.version.map(|version| version.era().as_str()));
    }),
    ("event", |of, line, key| plain(line, key, of.event.as_bytes())),
    ("findings", |of, line, key| {
        each(line, key, of.record.decision().map_or(&[], |decision| &decision.findings));
    }),
    ("found", |of, line, key| {
        each(line, key, of.end.map_or(&[], |_| &of.record.server_findings));
    }),
    ("groups", |of, line, key| {
        if let Some(who) = of.vouched() {
            some(line, key, who.groups.iter().map(|group| group.as_str()));
        }
    }),
    ("hidden", |of, line, key| count(line, key, of.listed().map(|(_, hidden)| hidden))),
    ("httpMethod", |of, line, key| {
        foreign(line, key, of.record.http_method.filter(|_| of.record.method.is_none()));
    }),
    ("id", |of, line, key| plain(line, key, &of.record.texts().id)),
    ("judged", |of, line, key| {
        foreign(line, key, of.record.judged.map(SelectionOutcome::as_str));
    }),
    ("listener", |of, line, key| foreign(line, key, Some(&of.record.listener))),
    ("mended", |of, line, key| {
        let mended = of.record.through.as_ref().map_or(&[][..], |through| &through.mended);
        some(line, key, mended.iter().map(|mend| mend.as_str()));
    }),
    ("method", |of, line, key| of.record.named(line, key, of.record.method.as_deref())),
    // Written by the author of the policy, but read where the words of peers are.
    ("missing", |of, line, key| of.record.named(line, key, of.record.missing())),
    ("outcome", |of, line, key| {
        if let Some(ending) = of.ending() {
            plain(line, key, ending.outcome.as_str().as_bytes());
        }
    }),
    ("peer", |of, line, key| plain(line, key, of.record.texts().peer.as_bytes())),
    ("policy", |of, line, key| plain(line, key, of.record.config_digest.as_bytes())),
    ("principal", |of, line, key| {
        foreign(line, key, of.record.principal.as_ref().map(|who| who.id.as_str()));
    }),
    (ItemKind::Prompt.as_str(), |of, line, key| of.item(line, key, ItemKind::Prompt)),
    ("proof", |of, line, key| {
        let proof = of.claims().map(|claims| claims.proof);
        let proof = proof.filter(|proof| *proof != ProofOfPossession::None);
        foreign(line, key, proof.map(ProofOfPossession::as_str));
    }),
    ("protocolVersion", |of, line, key| {
        foreign(line, key, of.record.version.map(ProtocolVersion::as_str));
    }),
    ("query", |of, line, key| {
        let search = of.record.search.as_ref().filter(|_| of.end.is_some());
        of.record.named(line, key, search.map(|search| search.query.as_str()));
    }),
    ("reason", |of, line, key| {
        if let Some(ending) = of.ending() {
            foreign(line, key, ending.reason.or_else(|| of.record.reason()));
        }
    }),
    (ItemKind::Resource.as_str(), |of, line, key| of.item(line, key, ItemKind::Resource)),
    ("result", |of, line, key| excerpt(line, key, of.result())),
    ("retries", |of, line, key| {
        if let Some(retries @ 1..) = of.end.map(|_| of.record.retries) {
            number(line, key, retries.into());
        }
    }),
    ("roles", |of, line, key| {
        if let Some(who) = of.vouched() {
            some(line, key, who.claims.roles.iter().map(|role| role.as_str()));
        }
    }),
    ("route", |of, line, key| foreign(line, key, of.record.route.as_deref())),
    ("rpcId", rpc_id),
    ("rule", |of, line, key| foreign(line, key, of.record.rule())),
    ("schema", |_, line, key| plain(line, key, SCHEMA.as_bytes())),
    ("scheme", |of, line, key| foreign(line, key, of.record.scheme)),
    ("scopes", |of, line, key| {
        if let Some(who) = of.vouched() {
            some(line, key, who.claims.scopes.iter().map(|scope| scope.as_str()));
        }
    }),
    ("server", |of, line, key| foreign(line, key, of.record.server.as_deref())),
    ("shadow", |of, line, key| {
        each(line, key, of.record.decision().map_or(&[], |decision| &decision.shadow));
    }),
    ("shown", |of, line, key| count(line, key, of.listed().map(|(shown, _)| shown))),
    (ItemKind::Skill.as_str(), |of, line, key| of.item(line, key, ItemKind::Skill)),
    ("span", |of, line, key| {
        if of.record.trace.sampled {
            line.show(key, &format_args!("{:016x}", of.record.trace.span));
        }
    }),
    ("status", |of, line, key| {
        if let Some(ending) = of.ending() {
            number(line, key, ending.status.into());
        }
    }),
    (ItemKind::Template.as_str(), |of, line, key| of.item(line, key, ItemKind::Template)),
    ("through", |of, line, key| {
        let through = of.record.through.as_ref();
        foreign(line, key, through.map(|through| DiscoveryTool::Call(through.class).name()));
    }),
    ("time", |of, line, key| plain(line, key, of.record.texts().time.as_bytes())),
    ("token", |of, line, key| {
        foreign(line, key, of.claims().and_then(|claims| claims.token.as_deref()));
    }),
    (ItemKind::Tool.as_str(), |of, line, key| of.item(line, key, ItemKind::Tool)),
    ("tools", |of, line, key| {
        if let Some(search) = of.record.search.as_ref().filter(|_| of.end.is_some()) {
            let tools = search.tools.iter().map(|name| of.record.shown(name).into_owned());
            list(line.ours(key), tools);
        }
    }),
    ("trace", |of, line, key| plain(line, key, of.record.texts().trace.as_bytes())),
    ("withheld", |of, line, key| {
        if of.end.is_some() && !of.record.hidden_items.is_empty() {
            list(line.ours(key), of.record.hidden_items.iter().map(|one| of.record.left_out(one)));
        }
    }),
];

impl ExchangeLine<'_> {
    /// Writes the line as one JSON object.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1200);
        let mut line = Object::open(&mut out);
        for (name, write) in MEMBERS {
            write(self, &mut line, name);
        }
        line.close();
        out
    }

    /// How the exchange ended, if it did.
    fn ending(&self) -> Option<ExchangeEnd> {
        self.end.map(|(ending, _)| ending)
    }

    /// What the credential of the caller states, if there is one.
    fn claims(&self) -> Option<&Claims> {
        self.record.principal.as_ref().map(|who| &who.claims)
    }

    /// The caller if its groups, roles and scopes come from a token or certificate. They are recorded at the end of the
    /// exchange, because a later simulation of another policy needs them and has no other source.
    fn vouched(&self) -> Option<&Principal> {
        let vouched = matches!(self.record.scheme, Some(OAUTH | CERTIFICATE)) && self.end.is_some();
        self.record.principal.as_deref().filter(|_| vouched)
    }

    /// The captured arguments, which are written once: in the `intent` line if there is one.
    fn arguments(&self) -> Option<&Excerpt> {
        let arguments = self.record.captured.as_ref()?.arguments.as_ref();
        arguments.filter(|_| self.end.is_none() || !self.record.intent_logged)
    }

    /// The captured result, which is known at the end.
    fn result(&self) -> Option<&Excerpt> {
        let result = self.record.captured.as_ref()?.result.as_ref();
        result.filter(|_| self.end.is_some())
    }

    /// The numbers of list items that were shown and hidden, which are known at the end.
    fn listed(&self) -> Option<(usize, usize)> {
        self.end.and(self.record.listed)
    }

    /// Writes the name of the requested item, if it is of `kind`.
    fn item(&self, line: &mut Object<'_>, key: &'static str, kind: ItemKind) {
        let item = self.record.item.as_ref().filter(|(its, _)| *its == kind);
        self.record.named(line, key, item.map(|(_, name)| &**name));
    }
}

/// Writes how long the exchange took, in total, in servers and in the gateway.
fn durations(of: &ExchangeLine<'_>, line: &mut Object<'_>, key: &'static str) {
    let Some((_, now)) = of.end else { return };
    let total = now.saturating_duration_since(of.record.started);
    let in_servers = of.record.in_servers();
    let mut durations = Object::open(line.ours(key));
    number(&mut durations, "gateway", micros(total.saturating_sub(in_servers)));
    number(&mut durations, "total", micros(total));
    number(&mut durations, "upstream", micros(in_servers));
    durations.close();
}

/// Writes the JSON-RPC id of the request, redacted.
fn rpc_id(of: &ExchangeLine<'_>, line: &mut Object<'_>, key: &'static str) {
    match of.record.rpc_id.as_ref().map(|id| of.record.shown_id(id)) {
        Some(Id::Number(id)) => {
            line.ours(key).extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
        }
        Some(Id::Text(id)) => write_ascii(line.ours(key), &id),
        None => {}
    }
}

/// Writes a list of things as text, unless it is empty.
fn each(line: &mut Object<'_>, key: &'static str, things: &[impl Display]) {
    if !things.is_empty() {
        list(line.ours(key), things.iter().map(ToString::to_string));
    }
}

/// Writes a number, if it is known.
fn count(line: &mut Object<'_>, key: &'static str, known: Option<usize>) {
    if let Some(known) = known {
        number(line, key, known as u64);
    }
}
