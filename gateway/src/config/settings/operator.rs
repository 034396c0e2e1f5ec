//! What a verb needs that asks a running gateway: its operator's listener, the token for it, and the file of
//! revocations.
//!
//! An operator must be able to revoke something while the configuration on disk is being mended and the gateway runs
//! on the one before it. So these three are also read from a configuration that is not valid.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{SecretRef, Settings, variables, yaml};

/// How a running gateway is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    /// The address of its operator's listener.
    pub address: Option<String>,
    /// Where the token is that an operator shows.
    pub token: Option<SecretRef>,
    /// The file of revocations.
    pub revocations: Option<PathBuf>,
}

impl Operator {
    /// As a valid configuration has it.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let ops = settings.ops.as_ref();
        Self {
            address: ops.map(|ops| ops.address.to_string()),
            token: ops.and_then(|ops| ops.token.clone()),
            revocations: settings.revocations.clone(),
        }
    }

    /// As the configuration `text` of `file` has it, whatever else is wrong with it; `None` if it is not YAML.
    #[must_use]
    pub fn read(file: &Path, text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let mut root = yaml::parse(text).ok()?;
        // A variable that is missing elsewhere does not matter here.
        variables::substitute(&mut root, lookup, &mut variables::Unsubstituted::default());
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

    use super::Operator;
    use crate::config::settings::SecretRef;

    #[test]
    fn a_configuration_that_is_not_valid_still_says_how_the_gateway_is_asked() {
        let text = "ops: {address: '127.0.0.1:${PORT}', token: {fromFile: /run/token}}\n\
                    revocations: {file: revoked.yaml}\nnonsense: ['${NOT_SET}']\n";
        let lookup = |name: &str| (name == "PORT").then(|| "9901".to_owned());
        let known = Operator::read(Path::new("/etc/gateway.yaml"), text, &lookup).unwrap();
        assert_eq!(known.address.as_deref(), Some("127.0.0.1:9901"));
        assert_eq!(known.token, Some(SecretRef::File("/run/token".into())));
        assert_eq!(known.revocations.as_deref(), Some(Path::new("/etc/revoked.yaml")));
        let empty = Operator::read(Path::new("x"), "servers: []", &lookup).unwrap();
        assert_eq!(empty, Operator::default());
        assert_eq!(Operator::read(Path::new("x"), "ops: {", &lookup), None);
    }
}
