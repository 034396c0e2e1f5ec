//! Removes apps that the policy does not allow, and what points to them, from what a server sends.

use std::borrow::Cow;
use std::ops::Range;

use detection::inspect::Finding;
use json::pointer::escaped;
use json::{JsonKind, Value, write_members, write_name, write_string};

use super::declared::AppPart;
use super::kind::{is_app, is_meta, is_of_apps};
use super::{AppPolicy, AppViolation};

/// Longest place of a finding, in bytes.
const PLACE: usize = 256;
/// Most findings about one message.
const KEPT: usize = 8;

/// A message without the apps that its server may not show.
#[derive(Debug)]
pub struct AppEdit {
    /// The JSON of the message; `None` if nothing was removed.
    pub text: Option<Vec<u8>>,
    /// What was removed, and why.
    pub findings: Vec<Finding>,
}

/// What was read, if a message is the answer to a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadItem {
    /// Anything else than an app, or nothing was read.
    #[default]
    Other,
    /// An app: a client shows all contents of the answer as the app, also those that say otherwise.
    App,
}

/// Where a value stands in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AppPlace {
    /// Among the blocks of content of a result or a prompt.
    Block,
    /// Among the contents of a resource that was read.
    Contents,
    /// Anywhere else.
    Other,
}

impl AppPlace {
    /// The place of the member `name`.
    fn of_member(name: &str) -> Self {
        match name {
            "content" => Self::Block,
            "contents" => Self::Contents,
            _ => Self::Other,
        }
    }
}

/// Removes from a message of a server what `policy` does not allow; `None` allows no app. `read` says what the message
/// answers.
///
/// A block of content with a refused app becomes a text that says so. Members of `_meta` that are about apps are left out
/// where they are not allowed.
///
/// # Errors
/// The finding for which the message is withheld: a resource that was read is an app that is not allowed.
pub fn edited(
    policy: Option<&AppPolicy>,
    message: Value<'_>,
    read: ReadItem,
) -> Result<AppEdit, Finding> {
    let mut edits = MessageEdits { policy, read, edits: Vec::new(), findings: Vec::new() };
    edits.value(message, &mut String::new(), AppPlace::Other)?;
    let MessageEdits { mut edits, findings, .. } = edits;
    if edits.is_empty() {
        return Ok(AppEdit { text: None, findings });
    }
    edits.sort_by_key(|(span, _)| span.start);
    let (raw, start) = (message.raw().as_bytes(), message.span().start);
    let (mut out, mut done) = (Vec::with_capacity(raw.len()), 0);
    for (span, new) in edits {
        out.extend_from_slice(raw.get(done..span.start - start).unwrap_or_default());
        out.extend_from_slice(&new);
        done = span.end - start;
    }
    out.extend_from_slice(raw.get(done..).unwrap_or_default());
    Ok(AppEdit { text: Some(out), findings })
}

/// A definition without the members of its `_meta` that are about apps and not allowed; `None` if it has none.
#[must_use]
pub fn definition(policy: Option<&AppPolicy>, definition: Value<'_>) -> Option<Vec<u8>> {
    let refused = |name: &str, value: Value<'_>| refused_member(policy, name, value).is_some();
    let has_refused = |meta: Value<'_>| meta.members().any(|(name, value)| refused(&name, value));
    if !definition.members().any(|(name, meta)| is_meta(&name) && has_refused(meta)) {
        return None;
    }
    let mut out = Vec::with_capacity(definition.raw().len());
    write_members(&mut out, definition.members(), |out, (name, value)| {
        write_name(out, &name);
        if is_meta(&name) && value.is_object() {
            let kept = value.members().filter(|(name, value)| !refused(name, *value));
            write_kept(out, kept);
        } else {
            out.extend_from_slice(value.raw().as_bytes());
        }
    });
    Some(out)
}

/// Why a member of `_meta` must not be passed on; `None` if it may.
fn refused_member(
    policy: Option<&AppPolicy>,
    name: &str,
    value: Value<'_>,
) -> Option<AppViolation> {
    if !is_of_apps(name, value) {
        return None;
    }
    match policy {
        Some(policy) => policy.check_member(name, value).err(),
        None => Some(AppViolation::NotConfigured),
    }
}

fn write_kept<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (Cow<'a, str>, Value<'a>)>) {
    write_members(out, members, |out, (name, value)| {
        write_name(out, &name);
        out.extend_from_slice(value.raw().as_bytes());
    });
}

struct MessageEdits<'a> {
    policy: Option<&'a AppPolicy>,
    read: ReadItem,
    /// What is written in place of which bytes of the document. No two overlap.
    edits: Vec<(Range<usize>, Vec<u8>)>,
    findings: Vec<Finding>,
}

impl MessageEdits<'_> {
    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn value(&mut self, value: Value<'_>, at: &mut String, place: AppPlace) -> Result<(), Finding> {
        let length = at.len();
        match value.kind() {
            JsonKind::Array => {
                for (n, item) in value.items().enumerate() {
                    if at.len() < PLACE {
                        at.push('/');
                        at.push_str(&n.to_string());
                    }
                    self.value(item, at, place)?;
                    at.truncate(length);
                }
            }
            JsonKind::Object => {
                match place {
                    AppPlace::Block if self.replaced(value, at) => return Ok(()),
                    AppPlace::Contents if self.read == ReadItem::App || is_app(value) => {
                        let violation = self.violation(value, AppPart::Content);
                        if let Some(violation) = violation {
                            return Err(Finding::app(at, violation.note()));
                        }
                    }
                    AppPlace::Block | AppPlace::Contents | AppPlace::Other => {}
                }
                for (name, member) in value.members() {
                    if at.len() + name.len() < PLACE {
                        at.push('/');
                        at.push_str(&escaped(&name));
                    }
                    match &*name {
                        name if is_meta(name) => self.meta(member, at),
                        // Data of the tool, which its schema describes and no client shows.
                        "structuredContent" => {}
                        name => self.value(member, at, AppPlace::of_member(name))?,
                    }
                    at.truncate(length);
                }
            }
            JsonKind::Null
            | JsonKind::Boolean
            | JsonKind::Number
            | JsonKind::Plain
            | JsonKind::Escaped => {}
        }
        Ok(())
    }

    /// Why an app, or a link to one, is refused.
    fn violation(&self, object: Value<'_>, part: AppPart) -> Option<AppViolation> {
        match self.policy {
            Some(policy) => policy.check(object, part).err(),
            None => Some(AppViolation::NotConfigured),
        }
    }

    /// Replaces a block of content that has a refused app by a text, and returns whether it did.
    fn replaced(&mut self, block: Value<'_>, at: &str) -> bool {
        let link = Some((block, AppPart::Link)).filter(|(block, _)| is_app(*block));
        let within = block.members().filter(|(_, member)| member.is_object() && is_app(*member));
        let mut apps = link.into_iter().chain(within.map(|(_, app)| (app, AppPart::Content)));
        let Some(violation) = apps.find_map(|(app, part)| self.violation(app, part)) else {
            return false;
        };
        let note = violation.note();
        let mut text = br#"{"type":"text","text":"#.to_vec();
        write_string(&mut text, &format!("[The gateway has removed an app: {note}]"));
        text.push(b'}');
        self.edits.push((block.span(), text));
        self.found(at, note);
        true
    }

    /// Removes the members of `_meta` that are about apps and not allowed.
    fn meta(&mut self, meta: Value<'_>, at: &str) {
        let refused =
            |(name, value): &(Cow<'_, str>, Value<'_>)| refused_member(self.policy, name, *value);
        let Some(violation) = meta.members().find_map(|member| refused(&member)) else { return };
        let mut kept = Vec::new();
        write_kept(&mut kept, meta.members().filter(|member| refused(member).is_none()));
        self.edits.push((meta.span(), kept));
        self.found(at, violation.note());
    }

    fn found(&mut self, at: &str, note: Cow<'static, str>) {
        if self.findings.len() < KEPT {
            self.findings.push(Finding::app(at, note));
        }
    }
}
