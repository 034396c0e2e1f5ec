//! Apps of servers (MCP Apps): HTML that a server has its clients show to their users, and that reaches other hosts from
//! there, past the gateway (control C36).
//!
//! A server without a policy of its own for them shows none: its apps are neither listed nor read, and what points to
//! them is removed, so that a client shows its tools as text. The access rules decide about an app like about any other
//! resource; all of this comes beside them.
//!
//! SPEC <https://github.com/modelcontextprotocol/ext-apps> (SEP-1865), revision 2026-01-26
//!
//! - [`origin`]: the origins that an app may reach
//! - [`kind`]: recognises apps, and what points to them
//! - [`declared`]: compares what an app declares with the policy
//! - [`message`]: removes apps, and what points to them, from what a server sends

pub mod origin;
pub mod kind;
pub mod declared;
pub mod message;

use std::borrow::Cow;
use std::collections::BTreeMap;

use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;

use origin::AppOrigin;

/// Name of the extension among the capabilities of clients and servers.
pub const EXTENSION: &str = "io.modelcontextprotocol/ui";
/// Longest name of a server that is repeated in a text, in bytes.
const NAMED: usize = 128;
/// Replaces a name that is longer, or that could be read as anything but a name.
const UNNAMED: &str = "(name omitted)";

/// The apps of all servers. The default allows none.
#[derive(Clone, Debug, Default)]
pub struct AppPolicies {
    servers: BTreeMap<ServerName, AppPolicy>,
}

impl AppPolicies {
    /// The policies of the servers that may show apps.
    #[must_use]
    pub fn new(servers: impl IntoIterator<Item = (ServerName, AppPolicy)>) -> Self {
        Self { servers: servers.into_iter().collect() }
    }

    /// The policy of a server; `None` if it may show no app.
    #[must_use]
    pub fn of(&self, server: &ServerName) -> Option<&AppPolicy> {
        self.servers.get(server)
    }
}

/// Which apps a server may show, and what they may declare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppPolicy {
    /// Patterns of their URIs in canonical form.
    pub resources: Vec<Pattern>,
    /// The origins that each list of `csp` may have.
    pub origins: BTreeMap<OriginList, Vec<AppOrigin>>,
    /// The permissions of the browser that they may ask for.
    pub permissions: Vec<AppPermission>,
    /// The origins of their own that they may ask for (`domain`), as the client spells them.
    pub domains: Vec<Box<str>>,
    /// Most bytes of the HTML of one app.
    pub size: usize,
}

/// A list of origins in the content security policy of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OriginList {
    /// Hosts that the app sends requests to (`connect-src`).
    Connect,
    /// Hosts of scripts, styles, images and fonts.
    Resource,
    /// Pages within the app (`frame-src`).
    Frame,
    /// What the URLs of the app may be relative to (`base-uri`).
    BaseUri,
}

impl OriginList {
    /// All lists of origins.
    pub const ALL: [Self; 4] = [Self::Connect, Self::Resource, Self::Frame, Self::BaseUri];

    /// The name in `_meta.ui.csp` and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connectDomains",
            Self::Resource => "resourceDomains",
            Self::Frame => "frameDomains",
            Self::BaseUri => "baseUriDomains",
        }
    }
}

/// A permission of the browser that an app can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AppPermission {
    /// Pictures of the camera.
    Camera,
    /// Sound of the microphone.
    Microphone,
    /// The place of the user.
    Geolocation,
    /// Writing to the clipboard.
    ClipboardWrite,
}

impl AppPermission {
    /// All permissions of the browser.
    pub const ALL: [Self; 4] =
        [Self::Camera, Self::Microphone, Self::Geolocation, Self::ClipboardWrite];

    /// The name in `_meta.ui.permissions` and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Camera => "camera",
            Self::Microphone => "microphone",
            Self::Geolocation => "geolocation",
            Self::ClipboardWrite => "clipboardWrite",
        }
    }
}

/// Why an app is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppViolation {
    /// The server may show no apps.
    NotConfigured,
    /// No pattern matches its URI, or the URI has no canonical form.
    Uri,
    /// It is an app by its media type, and its URI is not one of apps.
    Scheme,
    /// Its media type is not that of apps.
    MediaType,
    /// What it declares is not as the specification says.
    Malformed(&'static str),
    /// A list of origins has one that is not written as a plain origin.
    Spelling(OriginList, Box<str>),
    /// A list of origins has one that the policy does not allow there.
    Origin(OriginList, Box<str>),
    /// It asks for a permission that the policy does not allow.
    Permission(Box<str>),
    /// It asks for an origin of its own that the policy does not allow.
    Domain(Box<str>),
    /// Its HTML is longer than this number of bytes.
    Size(usize),
}

impl AppViolation {
    /// The reason in words, for callers and operators. Names that the server chose are in it only if they can be read as
    /// nothing else.
    #[must_use]
    pub fn note(&self) -> Cow<'static, str> {
        match self {
            Self::NotConfigured => {
                "the server may show no apps (`ui://`): `apps` of the server is not configured"
                    .into()
            }
            Self::Uri => "no pattern under `apps.resources` of the server matches its URI".into(),
            Self::Scheme => "an app must have a URI that begins with `ui://`".into(),
            Self::MediaType => "an app must have the media type `text/html;profile=mcp-app`".into(),
            Self::Malformed(what) => format!("what the app declares is not valid: {what}").into(),
            Self::Spelling(list, named) => {
                let (list, named) = (list.name(), plain(named));
                format!("`{named}` in `{list}` of the app is not an origin in its plain form")
                    .into()
            }
            Self::Origin(list, named) => {
                let (list, named) = (list.name(), plain(named));
                format!("`apps.csp.{list}` of the server does not list `{named}`").into()
            }
            Self::Permission(named) => {
                format!("`apps.permissions` of the server does not list `{}`", plain(named)).into()
            }
            Self::Domain(named) => {
                format!("`apps.domains` of the server does not list `{}`", plain(named)).into()
            }
            Self::Size(most) => format!("the app is longer than {most} bytes").into(),
        }
    }
}

/// A name that a server chose, as it may stand in a text: look-alike letters are escaped.
fn plain(name: &str) -> Cow<'static, str> {
    let shown: String = name.chars().take(NAMED + 1).flat_map(char::escape_default).collect();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:/*_-\\{}[]".contains(&byte);
    if shown.is_empty() || shown.len() > NAMED || !shown.bytes().all(is_plain) {
        return UNNAMED.into();
    }
    shown.into()
}

#[cfg(test)]
mod tests;
