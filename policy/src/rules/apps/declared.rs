//! Compares what an app declares with the policy. What is unknown is refused: a client may give it a power that nobody
//! has allowed.

use json::{JsonKind, Value};

use super::kind::{app_uri, is_app_type, is_app_uri, is_exact_type, is_meta, is_of_apps};
use super::origin::AppOrigin;
use super::{AppPermission, AppPolicy, AppViolation, OriginList};

/// Most origins in one list.
const ORIGINS: usize = 64;

/// What an object says of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppPart {
    /// It lists the app or links to it: its media type may be missing.
    Link,
    /// It is the app, with its HTML.
    Content,
}

impl AppPolicy {
    /// Compares an app, or what links to it, with the policy.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self, object: Value<'_>, part: AppPart) -> Result<(), AppViolation> {
        let text = |name: &str| object.get(name).and_then(Value::as_str);
        let uri = text("uri").or_else(|| text("uriTemplate")).unwrap_or_default();
        if !is_app_uri(&uri) {
            return Err(AppViolation::Scheme);
        }
        self.check_uri(&uri)?;
        match (object.get("mimeType"), part) {
            (None, AppPart::Link) => {}
            (Some(kind), _) if kind.as_str().is_some_and(|kind| is_exact_type(&kind)) => {}
            (Some(_) | None, _) => return Err(AppViolation::MediaType),
        }
        self.check_size(object)?;
        let metas = object.members().filter(|(name, _)| is_meta(name));
        metas.flat_map(|(_, meta)| meta.members()).try_for_each(|(name, value)| {
            if is_of_apps(&name, value) { self.check_member(&name, value) } else { Ok(()) }
        })
    }

    /// Compares the URI of an app with the policy.
    ///
    /// # Errors
    /// If no pattern matches its canonical form.
    pub fn check_uri(&self, uri: &str) -> Result<(), AppViolation> {
        let uri = app_uri(uri).ok_or(AppViolation::Uri)?;
        let is_listed = self.resources.iter().any(|pattern| pattern.matches(uri.as_str()));
        if is_listed { Ok(()) } else { Err(AppViolation::Uri) }
    }

    /// Compares the length of the HTML with the policy.
    fn check_size(&self, object: Value<'_>) -> Result<(), AppViolation> {
        let length = |name: &str| object.get(name).map_or(0, |value| value.span().len());
        let text = object.get("text").and_then(Value::as_str).map_or(0, |text| text.len());
        // Base64 has four characters for three bytes.
        let longest = text.max(length("blob") / 4 * 3);
        if longest > self.size { Err(AppViolation::Size(self.size)) } else { Ok(()) }
    }

    /// Compares a member of `_meta` that is about apps with the policy.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_member(&self, name: &str, value: Value<'_>) -> Result<(), AppViolation> {
        if name == "ui" {
            return self.check_ui(value);
        }
        match value.as_str() {
            Some(uri) if is_app_uri(&uri) => self.check_uri(&uri),
            _ => Err(AppViolation::Malformed("a member of `_meta` about apps is unknown")),
        }
    }

    /// Compares `_meta.ui` with the policy.
    fn check_ui(&self, ui: Value<'_>) -> Result<(), AppViolation> {
        if !ui.is_object() {
            return Err(AppViolation::Malformed("`_meta.ui` is not an object"));
        }
        ui.members().try_for_each(|(name, value)| match &*name {
            "resourceUri" => self.check_uri(&value.as_str().unwrap_or_default()),
            "visibility" => check_visibility(value),
            "csp" => self.check_csp(value),
            "permissions" => self.check_permissions(value),
            "domain" => self.check_domain(value),
            "prefersBorder" if value.kind() == JsonKind::Boolean => Ok(()),
            "prefersBorder" => Err(AppViolation::Malformed("`prefersBorder` is not a boolean")),
            "mimeType" if value.as_str().is_some_and(|kind| is_app_type(&kind)) => {
                let is_exact = value.as_str().is_some_and(|kind| is_exact_type(&kind));
                if is_exact { Ok(()) } else { Err(AppViolation::MediaType) }
            }
            _ => Err(AppViolation::Malformed("`_meta.ui` has an unknown member")),
        })
    }

    /// Compares the origins that an app may reach with the policy.
    fn check_csp(&self, csp: Value<'_>) -> Result<(), AppViolation> {
        if !csp.is_object() {
            return Err(AppViolation::Malformed("`csp` is not an object"));
        }
        csp.members().try_for_each(|(name, value)| {
            let list = OriginList::ALL.into_iter().find(|list| list.name() == &*name);
            let list = list.ok_or(AppViolation::Malformed("`csp` has an unknown member"))?;
            if value.kind() != JsonKind::Array || value.items().nth(ORIGINS).is_some() {
                return Err(AppViolation::Malformed("`csp` has a list that is none, or too long"));
            }
            value.items().try_for_each(|origin| self.check_origin(list, origin))
        })
    }

    fn check_origin(&self, list: OriginList, origin: Value<'_>) -> Result<(), AppViolation> {
        let text = origin.as_str();
        let text = text.ok_or(AppViolation::Malformed("`csp` has an origin that is no text"))?;
        let read = AppOrigin::parse(&text);
        let read = read.map_err(|_error| AppViolation::Spelling(list, (*text).into()))?;
        let mut allowed = self.origins.get(&list).into_iter().flatten();
        let is_allowed = allowed.any(|allowed| allowed.allows(&read));
        if is_allowed { Ok(()) } else { Err(AppViolation::Origin(list, (*text).into())) }
    }

    /// Compares the permissions that an app asks for with the policy. A permission counts with every value, because
    /// some clients ask only whether it is there.
    fn check_permissions(&self, asked: Value<'_>) -> Result<(), AppViolation> {
        if !asked.is_object() {
            return Err(AppViolation::Malformed("`permissions` is not an object"));
        }
        asked.members().try_for_each(|(name, _)| {
            let known = AppPermission::ALL.into_iter().find(|known| known.name() == &*name);
            let is_allowed = known.is_some_and(|known| self.permissions.contains(&known));
            if is_allowed { Ok(()) } else { Err(AppViolation::Permission((*name).into())) }
        })
    }

    fn check_domain(&self, domain: Value<'_>) -> Result<(), AppViolation> {
        let text = domain.as_str().ok_or(AppViolation::Malformed("`domain` is not a text"))?;
        let is_allowed = self.domains.iter().any(|known| **known == *text);
        if is_allowed { Ok(()) } else { Err(AppViolation::Domain((*text).into())) }
    }
}

/// Who may see the tool: the model, the app, or both. It is a matter of the client, and needs only to be well formed.
fn check_visibility(value: Value<'_>) -> Result<(), AppViolation> {
    let is_known = |item: Value<'_>| item.is_text("model") || item.is_text("app");
    if value.kind() == JsonKind::Array && value.items().all(is_known) {
        return Ok(());
    }
    Err(AppViolation::Malformed("`visibility` is not a list of `model` and `app`"))
}
