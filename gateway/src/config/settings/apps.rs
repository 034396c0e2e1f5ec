//! Compiles the `apps` of a server: which apps it may show, and what they may declare.

use policy::rules::apps::origin::AppOrigin;
use policy::rules::apps::{AppPermission, AppPolicy, OriginList};
use policy_core::subject::pattern::Pattern;

use super::compiler::SettingsCompiler;
use super::raw::{RawAppCsp, RawAppPermission, RawApps};

/// The default size limit of the HTML of an app.
const SIZE: usize = 1024 * 1024;
/// How the canonical URIs of apps begin.
const SCHEME: &str = "ui:";

impl SettingsCompiler<'_> {
    /// Compiles the `apps` at `at`.
    pub(super) fn apps(&mut self, at: &str, raw: RawApps) -> AppPolicy {
        let RawApps { resources, csp, permissions, domains, max_size } = raw;
        let resources = self.app_uris(&format!("{at}/resources"), &resources);
        let RawAppCsp { connect_domains, resource_domains, frame_domains, base_uri_domains } = csp;
        let lists = [connect_domains, resource_domains, frame_domains, base_uri_domains];
        let lists = OriginList::ALL.into_iter().zip(lists);
        let origins = lists.map(|(list, texts)| {
            (list, self.app_origins(&format!("{at}/csp/{}", list.name()), &texts))
        });
        let origins = origins.collect();
        let permissions = permissions.into_iter().map(|raw| match raw {
            RawAppPermission::Camera => AppPermission::Camera,
            RawAppPermission::Microphone => AppPermission::Microphone,
            RawAppPermission::Geolocation => AppPermission::Geolocation,
            RawAppPermission::ClipboardWrite => AppPermission::ClipboardWrite,
        });
        let permissions = permissions.collect();
        let domains = domains.into_iter().map(Into::into).collect();
        let size = self.size(&format!("{at}/maxSize"), max_size.as_deref()).unwrap_or(SIZE);
        AppPolicy { resources, origins, permissions, domains, size }
    }

    /// Compiles the patterns of the URIs of apps.
    fn app_uris(&mut self, at: &str, list: &[String]) -> Vec<Pattern> {
        self.filled(at, list, "name the apps, such as `ui://crm/*`");
        let mut patterns = Vec::with_capacity(list.len());
        for (n, text) in list.iter().enumerate() {
            let help =
                "write a URI of apps in its usual form, with `*` for what differs: `ui://crm/*`";
            let at = format!("{at}/{n}");
            match Pattern::resource(text) {
                Ok(pattern) if pattern.as_str().starts_with(SCHEME) => patterns.push(pattern),
                Ok(_) => {
                    let message = format!("`{}` is not the URI of an app", text.escape_debug());
                    self.report(&at, message, help);
                }
                Err(error) => {
                    self.report(&at, format!("`{}` {error}", text.escape_debug()), help);
                }
            }
        }
        patterns
    }

    /// Compiles the origins of one list.
    fn app_origins(&mut self, at: &str, list: &[String]) -> Vec<AppOrigin> {
        let mut origins = Vec::with_capacity(list.len());
        for (n, text) in list.iter().enumerate() {
            match AppOrigin::parse(text) {
                Ok(origin) => origins.push(origin),
                Err(error) => {
                    let message = format!("`{}` {error}", text.escape_debug());
                    let help =
                        "write an origin: `https://api.example.com` or `https://*.example.com`";
                    self.report(&format!("{at}/{n}"), message, help);
                }
            }
        }
        origins
    }
}
