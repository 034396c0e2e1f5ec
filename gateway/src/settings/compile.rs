//! From what is written to what is meant: names resolved, numbers read, contradictions reported.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::digest;
use policy::config::Known;
use policy::name::PrincipalId;
use policy::principal::Principal;

use super::problem::Problem;
use super::raw::{RawApiKey, RawListener, RawScheme, RawSecret, RawSettings, RawSink};
use super::yaml::Node;
use super::{ApiKey, Listener, Scheme, SecretRef, Settings, Sink, SinkTarget, groups};

/// Sessions live this long unless the file says otherwise.
const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);

pub(super) fn settings(raw: RawSettings, root: &Node) -> Result<Settings, Vec<Problem>> {
    let mut compiler = Compiler { root, problems: Vec::new() };
    let RawSettings { listeners, ops, identity, servers, routes, policy, audit, .. } = raw;
    let api_keys = compiler.api_keys(&identity.api_keys);
    let anonymous = identity.anonymous.as_ref().and_then(|raw| compiler.anonymous(&raw.groups));
    let known = (!api_keys.is_empty(), anonymous.is_some());
    let listeners = compiler.listeners(&listeners, known);
    let ops = ops.and_then(|raw| compiler.address("/ops/address", &raw.address));
    let servers = compiler.servers(servers);
    let routes = compiler.routes(&routes, &servers);
    let sinks = compiler.sinks(&audit.sinks);
    let digest_key = audit.digest_key.and_then(|raw| compiler.secret("/audit/digestKey", raw));
    let session_keys = raw.sessions.keys.into_iter().enumerate();
    let session_keys = session_keys
        .filter_map(|(n, raw)| compiler.secret(&format!("/sessions/keys/{n}"), raw))
        .collect();
    let session_lifetime = compiler
        .time("/sessions/lifetime", raw.sessions.lifetime.as_deref())
        .unwrap_or(SESSION_LIFETIME);
    let limits = compiler.limits(&raw.limits);
    let principals = Settings::principals(&api_keys, anonymous.as_ref());
    let names: Vec<_> = servers.iter().map(|server| server.name.clone()).collect();
    let policy = policy::config::compile(
        policy,
        Known { servers: &names, principals: &principals, others: false },
    );
    let policy = policy.map_err(|problems| {
        for policy::config::Problem { at, message, help } in problems {
            compiler.report(&format!("/policy{at}"), message, help);
        }
    });
    let digest = digest::digest(&digest::SHA256, root.json().to_string().as_bytes());
    match policy {
        Ok(policy) if compiler.problems.is_empty() => Ok(Settings {
            listeners,
            ops,
            api_keys,
            anonymous,
            servers,
            routes,
            policy,
            digest: crate::hex::encode(digest.as_ref()),
            sinks,
            digest_key,
            session_keys,
            session_lifetime,
            limits,
        }),
        Ok(_) | Err(()) => Err(compiler.problems),
    }
}

/// Reads the parts and keeps what is wrong with them.
pub(super) struct Compiler<'a> {
    root: &'a Node,
    problems: Vec<Problem>,
}

impl Compiler<'_> {
    pub(super) fn report(&mut self, at: &str, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem::new(self.root.place(at), message, help));
    }

    /// Reports a list with nothing in it.
    pub(super) fn filled<T>(&mut self, at: &str, list: &[T], help: &str) {
        if list.is_empty() {
            self.report(at, "the list is empty", help);
        }
    }

    /// Reports a name used before.
    pub(super) fn unique(&mut self, at: &str, name: &str, seen: &mut BTreeSet<String>) {
        if !seen.insert(name.to_owned()) {
            let message = format!("`{}` is used twice", name.escape_debug());
            self.report(at, message, "give each its own name");
        }
    }

    fn address(&mut self, at: &str, text: &str) -> Option<SocketAddr> {
        let text = text.replacen("localhost:", "127.0.0.1:", 1);
        match text.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                let message = format!("`{}` is not an address and port", text.escape_debug());
                self.report(at, message, "write `127.0.0.1:8080`, `[::1]:8080` or `0.0.0.0:8080`");
                None
            }
        }
    }

    fn listeners(&mut self, raws: &[RawListener], known: (bool, bool)) -> Vec<Listener> {
        self.filled("/listeners", raws, "add one; without a listener nobody can connect");
        let mut seen = BTreeSet::new();
        let listener = |(n, raw): (usize, &RawListener)| {
            let at = format!("/listeners/{n}");
            self.unique(&format!("{at}/name"), &raw.name, &mut seen);
            let address = self.address(&format!("{at}/address"), &raw.address)?;
            let schemes = self.schemes(&at, raw, address, known);
            Some(Listener {
                name: raw.name.as_str().into(),
                address,
                schemes,
                hosts: self.hosts(&at, raw, address),
                origins: self.origins(&at, raw),
            })
        };
        raws.iter().enumerate().filter_map(listener).collect()
    }

    fn schemes(
        &mut self,
        at: &str,
        raw: &RawListener,
        address: SocketAddr,
        (keys, anonymous): (bool, bool),
    ) -> Vec<Scheme> {
        let list = format!("{at}/authentication");
        self.filled(&list, &raw.authentication, "write `[apiKey]`: with none nobody gets in");
        let mut schemes = Vec::new();
        for (n, scheme) in raw.authentication.iter().enumerate() {
            let at = format!("{list}/{n}");
            schemes.push(match scheme {
                RawScheme::ApiKey => {
                    if !keys {
                        let help = "add one under `identity.apiKeys`; `portcullis keygen` makes it";
                        self.report(&at, "there is no API key", help);
                    }
                    Scheme::ApiKey
                }
                RawScheme::Anonymous => {
                    if !anonymous {
                        let help = "add `anonymous: {groups: [..]}` under `identity`";
                        self.report(&at, "the anonymous caller is not defined", help);
                    }
                    if !address.ip().is_loopback() {
                        let help = "bind the listener to 127.0.0.1, or ask for a credential";
                        let message = "anonymous callers are accepted on a loopback listener only";
                        self.report(&at, message, help);
                    }
                    Scheme::Anonymous
                }
            });
        }
        schemes
    }

    fn hosts(&mut self, at: &str, raw: &RawListener, address: SocketAddr) -> BTreeSet<Box<str>> {
        let mut hosts: BTreeSet<Box<str>> = BTreeSet::new();
        for (n, host) in raw.hosts.iter().enumerate() {
            let plain = !host.is_empty()
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b))
                && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
            if !plain {
                let message = format!("`{}` is not a host name", host.escape_debug());
                self.report(&format!("{at}/hosts/{n}"), message, "write the name without a port");
            }
            hosts.insert(host.to_ascii_lowercase().into());
        }
        match address.ip() {
            ip if ip.is_loopback() => {
                hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(Into::into));
            }
            ip if ip.is_unspecified() && hosts.is_empty() => {
                let help =
                    "add `hosts: [gateway.example.com]`; requests for other names are refused";
                self.report(at, "the names clients use for this listener are not given", help);
            }
            IpAddr::V4(ip) => hosts.extend((!ip.is_unspecified()).then(|| ip.to_string().into())),
            IpAddr::V6(ip) => {
                hosts.extend((!ip.is_unspecified()).then(|| format!("[{ip}]").into()))
            }
        }
        hosts
    }

    fn origins(&mut self, at: &str, raw: &RawListener) -> BTreeSet<Box<str>> {
        for (n, origin) in raw.origins.iter().enumerate() {
            let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            let good = rest.is_some_and(|host| {
                !host.is_empty()
                    && !host.contains(['/', '*', '@', '?', '#'])
                    && !host.bytes().any(|byte| byte.is_ascii_uppercase())
            });
            if !good {
                let message = format!("`{}` is not an origin", origin.escape_debug());
                let help = "write scheme, host and port in lower case: `https://app.example.com`";
                self.report(&format!("{at}/origins/{n}"), message, help);
            }
        }
        raw.origins.iter().map(|origin| origin.as_str().into()).collect()
    }

    fn principal(&mut self, at: &str, id: &str, names: &[String]) -> Option<Principal> {
        let groups = groups(names).map_err(|(n, error)| {
            self.report(&format!("{at}/groups/{n}"), format!("the group {error}"), "rename it");
        });
        let id = PrincipalId::parse(id).map_err(|error| {
            self.report(&format!("{at}/principal"), format!("the principal {error}"), "rename it");
        });
        Some(Principal::new(id.ok()?, groups.ok()?))
    }

    fn anonymous(&mut self, names: &[String]) -> Option<Principal> {
        self.principal("/identity/anonymous", "anonymous", names)
    }

    fn api_keys(&mut self, raws: &[RawApiKey]) -> Vec<ApiKey> {
        let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
        let key = |(n, raw): (usize, &RawApiKey)| {
            let at = format!("/identity/apiKeys/{n}");
            self.unique(&format!("{at}/name"), &raw.name, &mut names);
            self.unique(&format!("{at}/sha256"), &raw.sha256.to_ascii_lowercase(), &mut hashes);
            let sha256 = crate::hex::decode(&raw.sha256).and_then(|hash| hash.try_into().ok());
            if sha256.is_none() {
                let help = "write the 64 hexadecimal digits that `portcullis keygen` prints";
                self.report(&format!("{at}/sha256"), "not a SHA-256 in hexadecimal", help);
            }
            let principal = self.principal(&at, &raw.principal, &raw.groups)?;
            Some(ApiKey { sha256: sha256?, principal })
        };
        raws.iter().enumerate().filter_map(key).collect()
    }

    fn secret(&mut self, at: &str, raw: RawSecret) -> Option<SecretRef> {
        match (raw.from_env, raw.from_file) {
            (Some(variable), None) => Some(SecretRef::Env(variable)),
            (None, Some(file)) => Some(SecretRef::File(file.into())),
            _ => {
                let help = "give exactly one of `fromEnv` and `fromFile`";
                self.report(at, "it is not clear where the secret is", help);
                None
            }
        }
    }

    fn sinks(&mut self, raws: &[RawSink]) -> Vec<Sink> {
        self.filled("/audit/sinks", raws, "add a file or `stdout: true`: no record, no call");
        let mut seen = BTreeSet::new();
        let sink = |(n, raw): (usize, &RawSink)| {
            let at = format!("/audit/sinks/{n}");
            self.unique(&format!("{at}/name"), &raw.name, &mut seen);
            let to = match (&raw.file, raw.stdout) {
                (Some(file), None) => SinkTarget::File(file.into()),
                (None, Some(true)) => SinkTarget::Stdout,
                _ => {
                    let help = "give exactly one of `file: PATH` and `stdout: true`";
                    self.report(&at, "it is not clear where this sink writes", help);
                    return None;
                }
            };
            Some(Sink { name: raw.name.as_str().into(), to })
        };
        raws.iter().enumerate().filter_map(sink).collect()
    }
}
