//! Reads what commands need to reach a running gateway: the operator's listener, its token, and the revocation
//! file.
//!
//! An operator must be able to revoke while the configuration on disk is invalid and the gateway still runs on the
//! previous one. These three are therefore read from an invalid configuration as well.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{SecretRef, Settings, variables, yaml};

/// How a command reaches a running gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorAccess {
    /// The address of the operator's listener.
    pub address: Option<String>,
    /// Where the operator's token is stored.
    pub token: Option<SecretRef>,
    /// The path of the revocation file.
    pub revocations: Option<PathBuf>,
}

impl OperatorAccess {
    /// From a valid configuration.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let ops = settings.ops.as_ref();
        Self {
            address: ops.map(|ops| ops.address.to_string()),
            token: ops.and_then(|ops| ops.token.clone()),
            revocations: settings.revocations.clone(),
        }
    }

    /// From the configuration `text` of `file`, which may be invalid otherwise; `None` if it is not YAML.
    #[must_use]
    pub fn read(file: &Path, text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let mut root = yaml::parse(text).ok()?;
        // Unset variables elsewhere in the file do not matter here.
        variables::substitute(&mut root, lookup, &mut variables::SubstitutionProblems::default());
        let json = root.json();
        let text = |at: &str| json.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let folder = file.parent().unwrap_or(Path::new(""));
        let of_file = || text("/ops/token/fromFile").map(|file| SecretRef::File(folder.join(file)));
        Some(Self {
            address: text("/ops/address"),
            token: text("/ops/token/fromEnv").map(SecretRef::Env).or_else(of_file),
            revocations: text("/revocations/file").map(|file| folder.join(file)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::OperatorAccess;
    use crate::config::settings::SecretRef;

    #[test]
    fn a_configuration_that_is_not_valid_still_says_how_the_gateway_is_asked() {
        let text = "ops: {address: '127.0.0.1:${PORT}', token: {fromFile: /run/token}}\n\
                    revocations: {file: revoked.yaml}\nnonsense: ['${NOT_SET}']\n";
        let lookup = |name: &str| (name == "PORT").then(|| "9901".to_owned());
        let known = OperatorAccess::read(Path::new("/etc/gateway.yaml"), text, &lookup).unwrap();
        assert_eq!(known.address.as_deref(), Some("127.0.0.1:9901"));
        assert_eq!(known.token, Some(SecretRef::File("/run/token".into())));
        assert_eq!(known.revocations.as_deref(), Some(Path::new("/etc/revoked.yaml")));
        let empty = OperatorAccess::read(Path::new("x"), "servers: []", &lookup).unwrap();
        assert_eq!(empty, OperatorAccess::default());
        assert_eq!(OperatorAccess::read(Path::new("x"), "ops: {", &lookup), None);
    }
}
