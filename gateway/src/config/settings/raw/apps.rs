//! The `apps` of a server as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// Which apps (MCP Apps: HTML under `ui://` that clients show to their users) a server may show, and what they may
/// declare. An app that declares anything else is refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawApps {
    /// Patterns of the URIs of the apps, such as `ui://crm/*`. The rules decide about them as well, like about any other
    /// resource.
    pub(in crate::config::settings) resources: Vec<String>,
    /// The origins that apps may reach. What is left out allows none.
    #[serde(default)]
    pub(in crate::config::settings) csp: RawAppCsp,
    /// The permissions of the browser that apps may ask for. If not given: none.
    #[serde(default)]
    pub(in crate::config::settings) permissions: Vec<RawAppPermission>,
    /// The origins of their own that apps may ask for (`domain`), exactly as the client expects them. If not given: none.
    #[serde(default)]
    pub(in crate::config::settings) domains: Vec<String>,
    /// Maximum size of the HTML of an app, such as `1MiB`, the default.
    pub(in crate::config::settings) max_size: Option<String>,
}

/// The origins that the apps of a server may reach: `https://api.example.com`, `wss://live.example.com:8443`, or all
/// subdomains, `https://*.example.com`. A name in Punycode must be listed itself.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(in crate::config::settings) struct RawAppCsp {
    /// Hosts that apps may send requests to.
    pub(in crate::config::settings) connect_domains: Vec<String>,
    /// Hosts from which apps may load scripts, styles, images, fonts and media.
    pub(in crate::config::settings) resource_domains: Vec<String>,
    /// Hosts whose pages apps may show within them.
    pub(in crate::config::settings) frame_domains: Vec<String>,
    /// Origins that the URLs in apps may be relative to.
    pub(in crate::config::settings) base_uri_domains: Vec<String>,
}

/// A permission of the browser that an app can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawAppPermission {
    /// Pictures of the camera.
    Camera,
    /// Sound of the microphone.
    Microphone,
    /// The place of the user.
    Geolocation,
    /// Writing to the clipboard.
    ClipboardWrite,
}
