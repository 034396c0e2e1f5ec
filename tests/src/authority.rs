//! A real authorization server, as a process: `oidc-provider` from npm.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::gateway::root;
use crate::pki::{Leaf, Pki};

/// The authorization server.
#[derive(Debug)]
pub struct Authority {
    child: Child,
    /// Its authority for TLS, which made its certificate.
    pub pki: Pki,
    /// Its identifier.
    pub issuer: String,
}

impl Authority {
    /// Starts it, knowing the public key `gateway` of the client `gateway`.
    ///
    /// # Panics
    /// When it does not start; `tests/setup` installs it.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the server's own line, not a peer's")]
    pub fn start(gateway: Option<&Value>) -> Self {
        let pki = Pki::new("authorization server");
        let files = pki.issue(&Leaf::local());
        let mut command = Command::new("node");
        command
            .arg(root().join("tests/oauth/provider.mjs"))
            .env("TLS_CERT", &files.certificate)
            .env("TLS_KEY", &files.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(jwk) = gateway {
            command.env("GATEWAY_JWK", jwk.to_string());
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).expect("run tests/setup first");
        let issuer = said["issuer"].as_str().unwrap().to_owned();
        Self { child, pki, issuer }
    }

    /// What it answers to a request, as text: by `curl`'s side of it, with Node's own client.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn ask(&self, method: &str, path: &str) -> String {
        let script = "const [url, method] = process.argv.slice(1);\
            const answer = await fetch(url, { method });\
            process.stdout.write(await answer.text());";
        let output = Command::new("node")
            .args(["--input-type=module", "-e", script])
            .args([&format!("{}{path}", self.issuer), method])
            .env("NODE_EXTRA_CA_CERTS", self.pki.file())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
