//! What a person is asked, and the call that the answer is bound to.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use json::{Fragment, Value, hex};
use policy::definition::pin::Digest;
use policy::engine::message::ItemRequest;
use policy::flow::guard::{FlowViolation, Origin};
use policy::flow::label::FlowLabels;
use policy::rules::approval::ApprovalDemand;
use policy_core::subject::principal::Principal;

use crate::base::random::{self, NoRandomBytes};
use crate::base::sha256::sha256;
use crate::session::flow_store::FlowKey;

/// Begins what is hashed for a binding.
const FORMAT: &[u8] = b"portcullis approval v1";

/// What else an approval means if flow control asks, as `FlowPolicy::endorse` has it.
pub(super) const ENDORSES: &str = "if you approve, the targets of this call, and the value in question, count as given in this flow: \
                        later calls to them are not asked about, also with confidential text";

/// The id of a question: 128 random bits in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApprovalId(Box<str>);

impl ApprovalId {
    /// A new id.
    ///
    /// # Errors
    /// If there are no random bytes.
    pub fn new() -> Result<Self, NoRandomBytes> {
        Ok(Self(hex::encode(&random::bytes::<16>()?).into()))
    }

    /// The id with this text; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 32 && text.bytes().all(digit)).then(|| Self(text.into()))
    }

    /// The text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an approval is bound to, as one digest: another call has another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApprovalBinding([u8; 32]);

impl ApprovalBinding {
    /// The digest in hexadecimal.
    #[must_use]
    pub fn hex(&self) -> String {
        hex::encode(&self.0)
    }

    /// Reads what [`Self::hex`] wrote; `None` if it is not 32 bytes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        hex::decode(text)?.try_into().ok().map(Self)
    }
}

/// A call that needs an approval.
#[derive(Clone, Copy, Debug)]
pub struct BoundCall<'a> {
    /// Who calls, with its client and key.
    pub principal: &'a Principal,
    /// The server, the tool, and the arguments as the caller sent them.
    pub call: &'a ItemRequest,
    /// Answers in the request that no server has asked for.
    pub unasked: Option<&'a Fragment>,
    /// The flow, if flows are remembered.
    pub flow: Option<&'a FlowKey>,
    /// Why the call needs the approval, and the state of the policy.
    pub demand: &'a ApprovalDemand,
    /// The version of the configuration.
    pub config_digest: &'a str,
    /// The process, if flow control asks: what it asks about is known of flows of this process.
    pub process: Option<&'a [u8; 32]>,
}

impl BoundCall<'_> {
    /// The digest of everything that must not change between the question and the call.
    #[must_use]
    pub fn binding(&self) -> ApprovalBinding {
        let Self { principal, call, unasked, flow, demand, config_digest, process } = self;
        let ApprovalDemand { rule, causes, definition, labels, .. } = demand;
        let arguments = call.arguments.as_ref().map(|given| in_one_spelling(given.value()));
        let arguments = arguments.unwrap_or_default();
        let mut extra = Vec::new();
        for (key, value) in &call.extra {
            json::write_string(&mut extra, key);
            extra.extend(in_one_spelling(value.value()));
        }
        let unasked = unasked.map(|answers| in_one_spelling(answers.value()));
        let mut bound = FORMAT.to_vec();
        for part in [
            principal.key().as_bytes(),
            call.server.as_str().as_bytes(),
            call.name.as_bytes(),
            &arguments,
            &extra,
            format!("{definition:?}").as_bytes(),
            format!("{flow:?} {labels:?}").as_bytes(),
            format!("{rule} {causes:?}").as_bytes(),
            config_digest.as_bytes(),
            process.map(<[u8; 32]>::as_slice).unwrap_or_default(),
            unasked.as_deref().unwrap_or_default(),
        ] {
            // With its length before it, no part runs into the next one.
            bound.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bound.extend_from_slice(part);
        }
        ApprovalBinding(sha256(&bound))
    }
}

/// A value in its canonical form, in which equal numbers have one spelling. One with a number that has no exact canonical
/// form keeps the spelling of its numbers.
fn in_one_spelling(value: Value<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    if json::write_canonical(&mut out, value).is_err() {
        out.clear();
        json::write_plain(&mut out, value);
    }
    out
}

/// What a person is asked. It has no text of a server.
#[derive(Clone, Debug)]
pub struct ApprovalQuestion {
    /// The id of the question, which cannot be guessed.
    pub id: ApprovalId,
    /// What the answer is bound to.
    pub binding: ApprovalBinding,
    /// The principal that calls.
    pub principal: Box<str>,
    /// The client that it calls with, as its issuer named it.
    pub client: Option<Box<str>>,
    /// The upstream server.
    pub server: Box<str>,
    /// The tool, with the name that the server uses.
    pub tool: Box<str>,
    /// The rule that allows the call.
    pub rule: Box<str>,
    /// What asks for the approval.
    pub causes: Vec<&'static str>,
    /// The arguments, complete and drawn.
    pub arguments: Box<str>,
    /// Members of the request beside the arguments that are sent as well, complete and drawn; empty if there are none.
    pub extra: Box<str>,
    /// The keyed digest of the arguments in canonical form, as in `approval` records.
    pub argument_digest: Box<str>,
    /// The digest of the definition of the tool.
    pub definition: Option<Digest>,
    /// Why flow control asks, if it does.
    pub violation: Option<FlowViolation>,
    /// The labels of the flow.
    pub labels: FlowLabels,
    /// Where the values of each argument came from; empty if no flow is remembered.
    pub origins: Vec<(Box<str>, Origin)>,
    /// When it was asked.
    pub asked: SystemTime,
    /// When it can no longer be answered.
    pub expires: SystemTime,
    /// The version of the configuration under which it was asked.
    pub config_digest: Arc<str>,
}

impl ApprovalQuestion {
    /// The bytes of the caller's texts in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let origins: usize = self.origins.iter().map(|(name, _)| name.len()).sum();
        self.arguments.len() + self.extra.len() + self.tool.len() + origins
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use json::{Document, Fragment, JsonBounds};
    use policy::engine::message::{ItemRequest, RequestOperation};
    use policy::flow::label::FlowLabels;
    use policy::rules::approval::{ApprovalCause, ApprovalDemand};
    use policy_core::subject::name::{PrincipalId, RuleId, ServerName};
    use policy_core::subject::principal::Principal;

    use super::{ApprovalBinding, BoundCall};
    use crate::session::flow_store::{FlowKey, FlowPart};

    struct Parts {
        process: Option<[u8; 32]>,
        principal: &'static str,
        server: &'static str,
        tool: &'static str,
        arguments: &'static str,
        labels: FlowLabels,
        flow: Option<u8>,
        config: &'static str,
    }

    impl Default for Parts {
        fn default() -> Self {
            Self {
                process: None,
                principal: "ana",
                server: "mail",
                tool: "send",
                arguments: r#"{"n":1,"to":"b"}"#,
                labels: FlowLabels::default(),
                flow: None,
                config: "one",
            }
        }
    }

    fn binding(parts: &Parts) -> ApprovalBinding {
        let principal = Principal::new(PrincipalId::parse(parts.principal).unwrap(), [].into());
        let document = Document::parse(Bytes::from(parts.arguments), &JsonBounds::MESSAGE);
        let call = ItemRequest {
            arguments: Some(Fragment::whole(Arc::new(document.unwrap()))),
            ..ItemRequest::bare(
                &ServerName::parse(parts.server).unwrap(),
                RequestOperation::Call,
                parts.tool,
            )
        };
        let demand = ApprovalDemand {
            rule: RuleId::parse("writes").unwrap(),
            causes: vec![ApprovalCause::Rule],
            definition: None,
            labels: parts.labels,
            origins: Vec::new(),
        };
        let flow = parts.flow.map(|n| FlowKey {
            caller: "ana".into(),
            part: FlowPart::Session([n; 16]),
            planner: None,
        });
        let (principal, call, flow, demand) = (&principal, &call, flow.as_ref(), &demand);
        let process = parts.process.as_ref();
        let (unasked, config_digest) = (None, parts.config);
        BoundCall { principal, call, unasked, flow, demand, config_digest, process }.binding()
    }

    #[test]
    fn another_call_is_bound_otherwise_and_another_spelling_is_not() {
        let ours = binding(&Parts::default());
        for arguments in
            [r#"{ "to": "\u0062", "n": 1 }"#, r#"{"n":1.0,"to":"b"}"#, r#"{"n":10e-1,"to":"b"}"#]
        {
            assert_eq!(binding(&Parts { arguments, ..Parts::default() }), ours, "{arguments}");
        }
        for other in [
            Parts { principal: "bob", ..Parts::default() },
            Parts { server: "chat", ..Parts::default() },
            Parts { tool: "sent", ..Parts::default() },
            Parts { arguments: r#"{"n":1,"to":"c"}"#, ..Parts::default() },
            Parts { arguments: r#"{"n":1.5,"to":"b"}"#, ..Parts::default() },
            Parts { arguments: r#"{"n":1e999,"to":"b"}"#, ..Parts::default() },
            Parts { labels: FlowLabels::STRICTEST, ..Parts::default() },
            Parts { flow: Some(1), ..Parts::default() },
            Parts { config: "two", ..Parts::default() },
            Parts { process: Some([7; 32]), ..Parts::default() },
        ] {
            assert_ne!(binding(&other), ours);
        }
    }
}
