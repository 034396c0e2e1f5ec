//! TLS of listeners: which certificates let a client in, and what of them is believed.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use e2e::client::{Client, raw};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway};
use e2e::issuer::Issuer;
use e2e::pki::{Files, Leaf, Pki};
use e2e::server::Server;
use e2e::tls::{client, shake, tunnel};
use e2e::{ERAS, Era, eventually};
use rcgen::ExtendedKeyUsagePurpose;
use serde_json::json;

use crate::revoking::{revoke, switchable};
use crate::tokens::believing;

const POLICY: &str =
    "rules:\n- {id: all, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

/// TLS with the certificate `own`, and more of it.
pub(crate) fn tls(own: &Files, more: &str) -> String {
    let (certificate, key) = (own.certificate.display(), own.key.display());
    format!("tls:\n  certificate: '{certificate}'\n  key: '{key}'\n{more}")
}

fn secure(server: &Server, own: &Files, clients: &str) -> Config {
    let mut config = Config::of(&server.url()).policy(POLICY);
    let clients =
        if clients.is_empty() { String::new() } else { format!("  clients: {{{clients}}}\n") };
    config.listener = tls(own, &clients);
    config
}

#[test]
fn tls_is_spoken_and_nothing_else() {
    for era in ERAS {
        let (server, pki) = (Server::echo(era, &["echo"]), Pki::new("gateway"));
        let own = pki.issue(&Leaf::local());
        let gateway = secure(&server, &own, "").start();
        let through = tunnel(gateway.address, client(pki.roots(), None));
        let ana = Client::connect(through, "/mcp", era, Some(ANA));
        assert_eq!(
            ana.call("echo", &json!({ "text": "hi" })).json()["result"]["content"][0]["text"],
            "hi"
        );
        // Who does not speak TLS gets no answer, and who believes another authority none either.
        let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
        std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .unwrap();
        let mut said = Vec::new();
        drop(std::io::Read::read_to_end(&mut stream, &mut said));
        assert!(!said.starts_with(b"HTTP"), "{said:?}");
        assert!(shake(gateway.address, client(Pki::new("other").roots(), None)).is_err());
        let metrics = gateway.metrics();
        let expiry = "portcullis_certificate_expiry_timestamp_seconds{listener=\"main\"} ";
        let ends = metrics.split(expiry).nth(1).unwrap().lines().next().unwrap();
        assert!(ends.parse::<u64>().unwrap() > e2e::issuer::now(), "{ends}");
        eventually("the failures", || {
            let metrics = gateway.metrics_now();
            (!metrics.contains("portcullis_tls_handshake_failures_total 0")).then_some(())
        });
    }
}

/// A handshake message may be 64 KiB long, and what has come of it is kept until it is whole.
#[test]
fn a_client_hello_that_is_longer_than_any_client_sends_is_not_waited_for() {
    for era in ERAS {
        let (server, pki) = (Server::echo(era, &["echo"]), Pki::new("gateway"));
        let own = pki.issue(&Leaf::local());
        let gateway = secure(&server, &own, "").limits("requestTimeout: 10m").start();
        let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        // A record of 9 KiB: the beginning of a `ClientHello` of 60 KiB.
        let mut hello = vec![22, 3, 1, 0x24, 0, 1, 0, 0xf0, 0];
        hello.resize(5 + 0x2400, 0);
        std::io::Write::write_all(&mut stream, &hello).unwrap();
        let ended = std::io::Read::read(&mut stream, &mut [0; 64]);
        assert!(
            !matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
            "{ended:?}"
        );
        eventually("the failure", || {
            let metrics = gateway.metrics_now();
            metrics.contains("portcullis_tls_handshake_failures_total 1").then_some(())
        });
        let through = tunnel(gateway.address, client(pki.roots(), None));
        let ana = Client::connect(through, "/mcp", era, Some(ANA));
        assert_eq!(ana.call("echo", &json!({ "text": "hi" })).status, 200);
    }
}

#[test]
fn a_client_certificate_is_good_or_there_is_no_connection() {
    let (server, pki, other) =
        (Server::echo(Era::Modern, &["echo"]), Pki::new("clients"), Pki::new("others"));
    let own = pki.issue(&Leaf::local());
    let authorities = format!("authorities: '{}'", pki.path());
    let named = format!("certificates: required, {authorities}, names: ['uri:urn:agent:*']");
    let gateway = secure(&server, &own, &named).start();
    let with = |files: Option<&Files>| shake(gateway.address, client(pki.roots(), files)).is_ok();
    let leaf = |leaf: Leaf| pki.issue(&leaf);
    assert!(with(Some(&leaf(Leaf::uri("urn:agent:1")))));
    assert!(!with(None), "no certificate");
    for (what, files) in [
        ("ended", leaf(Leaf { ended: true, ..Leaf::uri("urn:agent:1") })),
        ("other authority", other.issue(&Leaf::uri("urn:agent:1"))),
        ("other name", leaf(Leaf::uri("urn:human:1"))),
        ("no name", leaf(Leaf::default())),
        ("an authority as a leaf", leaf(Leaf { authority: true, ..Leaf::uri("urn:agent:1") })),
        (
            "for servers",
            leaf(Leaf {
                usage: Some(ExtendedKeyUsagePurpose::ServerAuth),
                ..Leaf::uri("urn:agent:1")
            }),
        ),
    ] {
        assert!(!with(Some(&files)), "{what}");
    }
    assert!(server.count("tools/call") == 0);
    // AV-45: an authority vouches for what it may vouch for.
    let narrow = Pki::constrained("narrow", &["agents.example"]);
    let authorities_of = format!("certificates: required, authorities: '{}'", narrow.path());
    let gateway_of = secure(&server, &own, &authorities_of).start();
    for (host, good) in [("a.agents.example", true), ("a.evil.example", false)] {
        let files = narrow.issue(&Leaf { dns: vec![host.into()], ..Leaf::default() });
        let shaken = shake(gateway_of.address, client(pki.roots(), Some(&files)));
        assert_eq!(shaken.is_ok(), good, "{host}");
    }
    // Where none is required, one that is shown must be good all the same.
    let gateway = secure(&server, &own, &format!("certificates: optional, {authorities}")).start();
    let with = |files: Option<&Files>| shake(gateway.address, client(pki.roots(), files)).is_ok();
    assert!(with(None) && with(Some(&leaf(Leaf::default()))));
    assert!(!with(Some(&leaf(Leaf { ended: true, ..Leaf::default() }))));
    assert!(!with(Some(&other.issue(&Leaf::default()))));
}

#[test]
fn a_spiffe_id_is_believed_of_its_own_trust_domain() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let (pki, corp, other) = (Pki::new("gateway"), Pki::new("corp"), Pki::new("other"));
    let own = pki.issue(&Leaf::local());
    let domains = format!(
        "certificates: required, spiffe: [{{trustDomain: corp.example, bundle: '{}'}}, {{trustDomain: other.example, bundle: '{}'}}]",
        corp.path(),
        other.path(),
    );
    let mut config = secure(&server, &own, &domains);
    config.authentication = "[certificate]".to_owned();
    config.identity = "certificates:\n\
        - {names: ['uri:spiffe://corp.example/ns/*/agent'], groups: [dev]}\n\
        - {names: ['uri:spiffe://*'], groups: [others]}"
        .to_owned();
    config.policy = "rules:\n- {id: dev, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['*']}".to_owned();
    let gateway = config.start();
    let with = |files: &Files| shake(gateway.address, client(pki.roots(), Some(files))).is_ok();
    let agent = "spiffe://corp.example/ns/a/agent";
    let files = corp.issue(&Leaf::uri(agent));
    for era in ERAS {
        let through = tunnel(gateway.address, client(pki.roots(), Some(&files)));
        let mut caller = Client::silent(through, "/mcp", era, &[]);
        if era == Era::Legacy {
            caller.handshake("2025-11-25");
        }
        assert_eq!(caller.call("echo", &json!({})).status, 200);
        let record = gateway.last();
        assert_eq!(record["principal"], format!("uri:{agent}"));
        assert_eq!(
            (&record["scheme"], &record["proof"]),
            (&json!("certificate"), &json!("certificate"))
        );
    }
    assert!(with(&other.issue(&Leaf::uri("spiffe://other.example/x"))));
    // AV-45
    for (what, files) in [
        (
            "two URIs",
            corp.issue(&Leaf { uris: vec![agent.into(), "urn:x".into()], ..Leaf::default() }),
        ),
        (
            "two ids",
            corp.issue(&Leaf { uris: vec![agent.into(), agent.into()], ..Leaf::default() }),
        ),
        ("an id of the other domain", corp.issue(&Leaf::uri("spiffe://other.example/x"))),
        ("an id of no domain", corp.issue(&Leaf::uri("spiffe://evil.example/x"))),
        ("upper case", corp.issue(&Leaf::uri("spiffe://Corp.example/ns/a/agent"))),
        ("dots", corp.issue(&Leaf::uri("spiffe://corp.example/ns/../agent"))),
        ("a slash at the end", corp.issue(&Leaf::uri("spiffe://corp.example/ns/"))),
        ("an authority", corp.issue(&Leaf { authority: true, ..Leaf::uri(agent) })),
        ("no id", corp.issue(&Leaf::local())),
        ("another authority", pki.issue(&Leaf::uri(agent))),
    ] {
        assert!(!with(&files), "{what}");
    }
}

/// A certificate, as a proxy tells it in `Client-Cert`.
fn told(files: &Files) -> String {
    use base64::Engine as _;
    let (chain, _) = files.read();
    format!(":{}:", base64::engine::general_purpose::STANDARD.encode(&chain[0]))
}

/// Whom the gateway takes the client at `address` for, and the status of its answer.
fn taken_for(
    gateway: &Gateway,
    address: std::net::SocketAddr,
    era: Era,
    headers: &[(&str, &str)],
) -> (u16, String) {
    let silent = Client::silent(address, "/mcp", era, headers);
    let answer = if era == Era::Legacy { silent.hello() } else { silent.call("echo", &json!({})) };
    (answer.status, gateway.last()["principal"].as_str().unwrap_or("nobody").to_owned())
}

/// What the authority of a partner's trust domain can issue: the partner's own SPIFFE ID, and beside
/// it a name that belongs to us.
fn partners(other: &Pki) -> Files {
    other.issue(&Leaf {
        uris: vec!["spiffe://other.example/x".into()],
        dns: vec!["admin.corp.example".into()],
        ..Leaf::default()
    })
}

#[test]
fn a_federated_trust_domain_vouches_for_its_spiffe_ids_and_for_no_other_name() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let (pki, other) = (Pki::new("corp"), Pki::new("other"));
        let own = pki.issue(&Leaf::local());
        let clients = |more: &str| {
            format!(
                "certificates: required, authorities: '{}', spiffe: [{{trustDomain: other.example, bundle: '{}'}}]{more}",
                pki.path(),
                other.path(),
            )
        };
        let start = |more: &str, certificates: &str| {
            let mut config = secure(&server, &own, &clients(more));
            config.authentication = "[certificate]".to_owned();
            config.identity = format!("certificates: {certificates}");
            config.policy = "rules:\n- {id: dev, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['*']}".to_owned();
            config.start()
        };
        let admin = "{names: ['dns:admin.corp.example'], groups: [dev]}";
        let gateway = start("", &format!("[{admin}]"));
        let (partner, ours) = (
            partners(&other),
            pki.issue(&Leaf { dns: vec!["admin.corp.example".into()], ..Leaf::default() }),
        );
        let through =
            |gateway: &Gateway, files| tunnel(gateway.address, client(pki.roots(), Some(files)));
        // Our own authority vouches for the name, the partner's does not.
        let found = taken_for(&gateway, through(&gateway, &ours), era, &[]);
        assert_eq!(found, (200, "dns:admin.corp.example".to_owned()));
        assert_eq!(taken_for(&gateway, through(&gateway, &partner), era, &[]).0, 401);
        assert_eq!(gateway.last()["certificate"], json!(null));
        // Known by its SPIFFE ID it is that, and has no groups of the other name.
        let known =
            format!("[{admin}, {{names: ['uri:spiffe://other.example/*'], groups: [ops]}}]");
        let gateway = start("", &known);
        let mut caller = Client::silent(through(&gateway, &partner), "/mcp", era, &[]);
        if era == Era::Legacy {
            caller.handshake("2025-11-25");
        }
        assert_ne!(caller.call("echo", &json!({})).code(), 0);
        let record = gateway.last();
        assert_eq!(record["principal"], "uri:spiffe://other.example/x");
        assert_eq!(record["certificate"], "uri:spiffe://other.example/x");
        // `names` lets in who has a name that counts.
        let gateway = start(", names: ['dns:*.corp.example']", &known);
        let shaken = |files| shake(gateway.address, client(pki.roots(), Some(files))).is_ok();
        assert!(shaken(&ours));
        assert!(!shaken(&partner), "a name that the partner gave itself");
    }
}

#[test]
fn a_name_that_is_revoked_is_not_that_of_a_partner_who_gave_it_to_itself() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let (pki, other) = (Pki::new("corp"), Pki::new("other"));
        let own = pki.issue(&Leaf::local());
        let clients = format!(
            "certificates: required, authorities: '{}', spiffe: [{{trustDomain: other.example, bundle: '{}'}}]",
            pki.path(),
            other.path(),
        );
        let file = folder.path().join("revoked.yaml");
        let put = |text: &str| {
            let next = file.with_extension("next");
            fs::write(&next, text).unwrap();
            fs::rename(next, &file).unwrap();
        };
        put("principals: []\n");
        let mut config = secure(&server, &own, &clients);
        config.authentication = "[certificate]".to_owned();
        config.identity = "certificates: [{names: ['dns:admin.corp.example', 'uri:spiffe://other.example/*'], groups: [dev]}]".to_owned();
        config.more = format!("revocations: {{file: '{}'}}", file.display());
        let gateway = config.start();
        let ours = pki.issue(&Leaf { dns: vec!["admin.corp.example".into()], ..Leaf::default() });
        let partner = partners(&other);
        let status = |files| {
            let through = tunnel(gateway.address, client(pki.roots(), Some(files)));
            taken_for(&gateway, through, era, &[]).0
        };
        let served = || (status(&ours), status(&partner));
        for (revoked, expected) in [
            ("[]", (200, 200)),
            ("['dns:admin.corp.example']", (401, 200)),
            ("['uri:spiffe://other.example/x']", (200, 401)),
            ("[]", (200, 200)),
        ] {
            put(&format!("principals: {revoked}\n"));
            eventually(revoked, || (served() == expected).then_some(()));
            assert_eq!(served(), expected, "{era:?} {revoked}");
        }
    }
}

#[test]
fn a_federated_trust_domain_is_never_the_proxy_by_a_name_of_ours() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let (pki, other) = (Pki::new("corp"), Pki::new("other"));
        let own = pki.issue(&Leaf::local());
        let clients = format!(
            "certificates: required, authorities: '{}', spiffe: [{{trustDomain: other.example, bundle: '{}'}}]",
            pki.path(),
            other.path(),
        );
        let mut config = secure(&server, &own, &clients);
        config.listener.push_str("forwardedCertificate: {names: ['dns:admin.corp.example']}");
        config.authentication = "[certificate]".to_owned();
        config.identity = "certificates: [{names: ['uri:*', 'dns:*'], groups: [dev]}]".to_owned();
        let gateway = config.start();
        let proxy = pki.issue(&Leaf { dns: vec!["admin.corp.example".into()], ..Leaf::default() });
        let agent = told(&pki.issue(&Leaf::uri("urn:agent")));
        let through = |files: &Files| tunnel(gateway.address, client(pki.roots(), Some(files)));
        let tells = |files: &Files, value: &str| {
            taken_for(&gateway, through(files), era, &[("client-cert", value)])
        };
        assert_eq!(tells(&proxy, &agent), (200, "uri:urn:agent".to_owned()));
        let itself = (200, "uri:spiffe://other.example/x".to_owned());
        assert_eq!(tells(&partners(&other), &agent), itself, "the partner is who it is");
        // What the proxy verified with the bundle of a trust domain has the SPIFFE ID for a name, too.
        assert_eq!(tells(&proxy, &told(&partners(&other))), itself);
        for (what, uris) in [
            ("two SPIFFE IDs", vec!["spiffe://other.example/x", "spiffe://corp.example/x"]),
            ("not a SPIFFE ID", vec!["spiffe://other.example/../x"]),
        ] {
            let uris = uris.into_iter().map(Into::into).collect();
            let odd = told(&other.issue(&Leaf { uris, ..Leaf::default() }));
            assert_eq!(tells(&proxy, &odd).0, 400, "{what}");
        }
    }
}

#[test]
fn certificates_are_renewed_without_a_lost_handshake() {
    let (server, pki) = (Server::echo(Era::Modern, &["echo"]), Pki::new("gateway"));
    let own = pki.issue(&Leaf::local());
    let before = own.thumbprint();
    let authorities = pki.folder().join("authorities.pem");
    fs::copy(pki.file(), &authorities).unwrap();
    let clients = format!("certificates: required, authorities: '{}'", authorities.display());
    let gateway = secure(&server, &own, &clients).start();
    let mine = pki.issue(&Leaf::default());
    let shown = |files: &Files| shake(gateway.address, client(pki.roots(), Some(files)));
    let kept = tunnel(gateway.address, client(pki.roots(), Some(&mine)));
    assert_eq!(
        Client::connect(kept, "/mcp", Era::Modern, Some(ANA)).call("echo", &json!({})).status,
        200
    );
    let (done, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    thread::scope(|scope| {
        for _ in 0..3 {
            let (done, count, shown, mine) = (Arc::clone(&done), Arc::clone(&count), &shown, &mine);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    shown(mine).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // A key that does not fit its certificate is not taken; the old ones stay in use.
        let next = pki.issue(&Leaf::local());
        fs::copy(&next.key, &own.key).unwrap();
        gateway.says("new certificate rejected; keeping the previous one");
        assert!(shown(&mine).is_ok());
        next.replace(&own);
        gateway.says("new certificate in use");
        done.store(true, Ordering::Relaxed);
    });
    assert!(count.load(Ordering::Relaxed) > 10);
    assert_ne!(own.thumbprint(), before);
    // New authorities take the place of the old ones as well.
    let other = Pki::new("other");
    let theirs = other.issue(&Leaf::default());
    assert!(shown(&theirs).is_err());
    fs::copy(other.file(), &authorities).unwrap();
    eventually("the new authorities", || {
        (shown(&theirs).is_ok() && shown(&mine).is_err()).then_some(())
    });
}

#[test]
fn a_certificate_that_ends_takes_its_connection_with_it() {
    let (server, pki) = (Server::echo(Era::Legacy, &["echo"]), Pki::new("gateway"));
    let own = pki.issue(&Leaf::local());
    let clients = format!("certificates: required, authorities: '{}'", pki.path());
    let gateway = secure(&server, &own, &clients).start();
    let short = pki.issue(&Leaf { seconds: Some(4), ..Leaf::default() });
    let through = tunnel(gateway.address, client(pki.roots(), Some(&short)));
    let ana = Client::connect(through, "/mcp", Era::Legacy, Some(ANA));
    let mut stream = ana.stream(None);
    let mut rest = Vec::new();
    // The stream ends although nobody ended it.
    std::io::Read::read_to_end(&mut stream, &mut rest).unwrap();
    assert!(shake(gateway.address, client(pki.roots(), Some(&short))).is_err());
}

#[test]
fn a_proxy_tells_certificates_if_it_may() {
    for era in ERAS {
        let (server, issuer, pki) =
            (Server::echo(era, &["echo"]), Issuer::start(), Pki::new("clients"));
        let mine = pki.issue(&Leaf::uri("urn:a"));
        let (chain, _) = mine.read();
        let told = format!(
            ":{}:",
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &chain[0])
        );
        let pem = fs::read_to_string(&mine.certificate).unwrap();
        let escaped: String = pem.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let envoy = format!("Hash=ab;Cert=\"{escaped}\";URI=urn:a");
        let mut claims = issuer.claims("alice");
        claims["cnf"] = json!({ "x5t#S256": mine.thumbprint() });
        let token = format!("Bearer {}", issuer.token(&claims));
        let status = |gateway: &Gateway, header: &str, value: &str| {
            let headers = [("authorization", &*token), (header, value)];
            let client = Client::silent(gateway.address, "/mcp", era, &headers);
            let answer =
                if era == Era::Legacy { client.hello() } else { client.call("echo", &json!({})) };
            answer.status
        };
        let start = |forwarded: &str| {
            let mut config = believing(&server, &issuer.item("corp", "")).policy(POLICY);
            config.listener.push_str(&format!("\nforwardedCertificate: {{{forwarded}}}"));
            config.start()
        };
        let near = start("addresses: [127.0.0.1]");
        assert_eq!(status(&near, "client-cert", &told), 200);
        assert_eq!(near.last()["certificate"], "uri:urn:a");
        assert_eq!(status(&near, "x-forwarded-client-cert", &envoy), 401);
        for broken in ["", "::", "x", ":AAAA:", told.get(1..).unwrap()] {
            let found = status(&near, "client-cert", broken);
            assert!(found == 400 || found == 401, "{broken}: {found}");
        }
        let ended = pki.issue(&Leaf { ended: true, ..Leaf::uri("urn:a") });
        let (chain, _) = ended.read();
        let ended = format!(
            ":{}:",
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &chain[0])
        );
        assert_eq!(status(&near, "client-cert", &ended), 400);
        let envoys = start("addresses: [127.0.0.0/8], header: xForwardedClientCert");
        assert_eq!(status(&envoys, "x-forwarded-client-cert", &envoy), 200);
        assert_eq!(status(&envoys, "x-forwarded-client-cert", &format!("{envoy},{envoy}")), 400);
        // AV-45: who is not the proxy is not listened to.
        let far = start("addresses: [10.0.0.0/8]");
        assert_eq!(status(&far, "client-cert", &told), 401);
        // And nobody behind the gateway hears of it.
        for call in server.calls() {
            assert!(!call.head.to_lowercase().contains("client-cert"), "{}", call.head);
        }
    }
}

#[test]
fn a_proxy_is_known_by_its_certificate() {
    let (server, pki) = (Server::echo(Era::Modern, &["echo"]), Pki::new("clients"));
    let own = pki.issue(&Leaf::local());
    let clients = format!("certificates: required, authorities: '{}'", pki.path());
    let mut config = secure(&server, &own, &clients);
    config.listener.push_str("forwardedCertificate: {names: ['dns:proxy.example']}");
    config.authentication = "[certificate]".to_owned();
    config.identity = "certificates: [{names: ['uri:urn:*'], groups: [dev]}]".to_owned();
    let (folder, more, ops) = (Folder::new(), config.more.clone(), config.ops.clone());
    let mut config = switchable(config, &folder);
    let gateway = config.start();
    (config.more, config.ops) = (more, ops);
    let proxy = pki.issue(&Leaf { dns: vec!["proxy.example".into()], ..Leaf::default() });
    let agent = pki.issue(&Leaf::uri("urn:a"));
    let (chain, _) = agent.read();
    let told = format!(
        ":{}:",
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &chain[0])
    );
    let status = |shown: &Files, headers: &[(&str, &str)]| {
        let through = tunnel(gateway.address, client(pki.roots(), Some(shown)));
        Client::silent(through, "/mcp", Era::Modern, headers).call("echo", &json!({})).status
    };
    assert_eq!(status(&proxy, &[("client-cert", &told)]), 200);
    assert_eq!(gateway.last()["principal"], "uri:urn:a");
    // The proxy's own certificate is not its client's, and a client tells nothing of others.
    assert_eq!(status(&proxy, &[]), 401);
    let other = pki.issue(&Leaf::uri("urn:b"));
    assert_eq!(status(&other, &[("client-cert", &told)]), 200);
    assert_eq!(gateway.last()["principal"], "uri:urn:b");
    // Whoever has the key of a proxy could be every client, so its certificate is revoked for all who come through it.
    revoke(&gateway, &json!({ "principals": ["dns:proxy.example"] }));
    assert_eq!(status(&proxy, &[("client-cert", &told)]), 401);
    assert_eq!(gateway.last()["reason"], "credential-revoked", "{}", gateway.last());
    assert_eq!(status(&other, &[]), 200);
    // Also where the proxy is known by its address alone.
    config.listener =
        config.listener.replace("names: ['dns:proxy.example']", "addresses: [127.0.0.1]");
    let gateway = config.start();
    let through = tunnel(gateway.address, client(pki.roots(), Some(&other)));
    let silent = Client::silent(through, "/mcp", Era::Modern, &[]);
    assert_eq!(silent.call("echo", &json!({})).status, 401);
    let told = Client::silent(through, "/mcp", Era::Modern, &[("client-cert", &told)]);
    assert_eq!(told.call("echo", &json!({})).status, 200);
    // Who shows something else as well is judged by that.
    let wrong = Client::silent(through, "/mcp", Era::Modern, &[("authorization", "Bearer wrong")]);
    assert_eq!(wrong.call("echo", &json!({})).status, 401);
}

#[test]
fn whoever_shows_a_certificate_and_something_else_is_judged_by_that() {
    for era in ERAS {
        let (server, pki) = (Server::echo(era, &["echo"]), Pki::new("clients"));
        let own = pki.issue(&Leaf::local());
        let clients = format!("certificates: required, authorities: '{}'", pki.path());
        let start = |authentication: &str| {
            let mut config = secure(&server, &own, &clients);
            config.authentication = authentication.to_owned();
            config.identity = "certificates: [{names: ['uri:urn:*'], groups: [dev]}]".to_owned();
            config.start()
        };
        let files = pki.issue(&Leaf::uri("urn:a"));
        let (ana, bob) = (format!("Bearer {ANA}"), BOB);
        for authentication in ["[certificate, apiKey]", "[apiKey, certificate]", "[certificate]"] {
            let gateway = start(authentication);
            let through = tunnel(gateway.address, client(pki.roots(), Some(&files)));
            let found = |headers: &[(&str, &str)]| taken_for(&gateway, through, era, headers);
            let good = |principal: &str| (200, principal.to_owned());
            assert_eq!(found(&[]), good("uri:urn:a"), "{authentication}");
            let keys = authentication != "[certificate]";
            for (headers, principal) in [
                ([("authorization", &*ana)], "ana"),
                ([("x-api-key", bob)], "bob"),
                ([("authorization", "Bearer wrong")], "nobody"),
                ([("x-api-key", "wrong")], "nobody"),
                ([("authorization", "Basic YTpi")], "nobody"),
            ] {
                let what = format!("{authentication} {headers:?}");
                if keys && principal != "nobody" {
                    assert_eq!(found(&headers), good(principal), "{what}");
                    assert_eq!(gateway.last()["certificate"], "uri:urn:a", "{what}");
                } else {
                    assert_eq!(found(&headers), (401, "nobody".to_owned()), "{what}");
                }
            }
            let both = [("authorization", &*ana), ("x-api-key", bob)];
            assert_eq!(found(&both).0, 400, "{authentication}");
        }
    }
}

#[test]
fn a_caller_ends_with_the_certificate_that_a_proxy_has_told() {
    for era in ERAS {
        let (server, pki) = (Server::echo(era, &["echo"]), Pki::new("clients"));
        let issuer = Issuer::start();
        let mut config = believing(&server, &issuer.item("corp", "")).policy(POLICY);
        config.listener.push_str("\nforwardedCertificate: {addresses: [127.0.0.1]}");
        config.authentication = "[certificate, apiKey, oauth]".to_owned();
        config.identity.push_str("certificates: [{names: ['uri:urn:*'], groups: [dev]}]");
        let gateway = config.start();
        let (key, token) = (format!("Bearer {ANA}"), format!("Bearer {}", issuer.good("alice")));
        // The certificate alone, and with a key or a token that was shown together with it. The token is good for
        // longer than the certificate.
        for more in [vec![], vec![("authorization", &*key)], vec![("authorization", &*token)]] {
            let files = pki.issue(&Leaf { seconds: Some(4), ..Leaf::uri("urn:a") });
            let told = told(&files);
            let headers = [vec![("client-cert", &*told)], more].concat();
            let mut caller = Client::silent(gateway.address, "/mcp", era, &headers);
            let mut stream = match era {
                Era::Legacy => {
                    caller.handshake("2025-11-25");
                    caller.stream(None)
                }
                Era::Modern => {
                    let body = caller.message(
                        &json!(1),
                        "subscriptions/listen",
                        json!({ "notifications": { "toolsListChanged": true } }),
                    );
                    let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
                    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
                    let bytes = caller.bytes("subscriptions/listen", None, &body);
                    std::io::Write::write_all(&mut stream, &bytes).unwrap();
                    stream
                }
            };
            let head = e2e::client::until(&mut stream, "\r\n\r\n");
            assert!(head.contains(" 200 ") && head.contains("text/event-stream"), "{head}");
            // The connection is the proxy's and stays; what was opened with the certificate ends.
            let (mut seen, mut buffer) = (head.into_bytes(), [0; 4096]);
            eventually("the end of the stream", || {
                let read = std::io::Read::read(&mut stream, &mut buffer).unwrap();
                seen.extend_from_slice(&buffer[..read]);
                (read == 0 || seen.ends_with(b"0\r\n\r\n")).then_some(())
            });
            assert_eq!(taken_for(&gateway, gateway.address, era, &headers).0, 400);
        }
    }
}

#[test]
fn a_bad_configuration_of_tls_is_said_with_its_place() {
    let (server, pki) = (Server::echo(Era::Modern, &["echo"]), Pki::new("gateway"));
    let (own, other) = (pki.issue(&Leaf::local()), pki.issue(&Leaf::local()));
    let ended = pki.issue(&Leaf { ended: true, ..Leaf::local() });
    let none = Files { certificate: "/nowhere/c.pem".into(), key: own.key.clone() };
    let mixed = Files { certificate: own.certificate.clone(), key: other.key.clone() };
    let swapped = Files { certificate: own.key.clone(), key: own.key.clone() };
    let keyless = Files { certificate: own.certificate.clone(), key: own.certificate.clone() };
    for (files, clients, said) in [
        (&none, "", "could not read `/nowhere/c.pem`"),
        (&mixed, "", "does not belong to the certificate"),
        (&swapped, "", "has no certificates in PEM"),
        (&keyless, "", "has no private key in PEM"),
        (&ended, "", "ended at 2021-01-01"),
        (&own, "certificates: required", "nobody vouches for the certificates of clients"),
        (&own, "certificates: sometimes", "`sometimes` is not known here"),
        (
            &own,
            "certificates: required, authorities: /nowhere/ca.pem",
            "could not read `/nowhere/ca.pem`",
        ),
        (
            &own,
            "certificates: required, spiffe: [{trustDomain: 'A/b', bundle: x}]",
            "is not a trust domain",
        ),
        (&own, "certificates: required, authorities: CA, names: []", "the list is empty"),
        (
            &own,
            "certificates: required, authorities: CA, names: [agent]",
            "is not the name of a certificate",
        ),
    ] {
        let clients = clients.replace("CA", &pki.path());
        let refused = secure(&server, files, &clients).refused();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(3), "{said}: {text}");
        assert!(text.contains(said) && text.contains("gateway.yaml:"), "{said}: {text}");
    }
    let mut config = secure(&server, &own, "");
    config.authentication = "[certificate]".to_owned();
    let text = String::from_utf8_lossy(&config.refused().stderr).into_owned();
    assert!(text.contains("`identity.certificates` is empty"), "{text}");
    config.identity = "certificates: [{names: ['uri:*']}]".to_owned();
    let text = String::from_utf8_lossy(&config.refused().stderr).into_owned();
    assert!(text.contains("client certificates are not requested on this listener"), "{text}");
    let mut config = secure(&server, &own, "");
    config.listener.push_str("forwardedCertificate: {names: ['dns:x']}");
    let text = String::from_utf8_lossy(&config.refused().stderr).into_owned();
    assert!(text.contains("client certificates are not requested on this listener"), "{text}");
    let mut config = secure(&server, &own, "");
    config.listener.push_str("forwardedCertificate: {}");
    let text = String::from_utf8_lossy(&config.refused().stderr).into_owned();
    assert!(text.contains("it is not said who may tell certificates"), "{text}");
    // A trust domain alone vouches for no host.
    let domain = format!("spiffe: [{{trustDomain: corp.example, bundle: '{}'}}]", pki.path());
    let named = format!("certificates: required, {domain}, names: ['dns:x.example']");
    let text =
        String::from_utf8_lossy(&secure(&server, &own, &named).refused().stderr).into_owned();
    assert!(text.contains("trust domains vouch for SPIFFE IDs alone"), "{text}");
    let mut config = secure(&server, &own, &format!("certificates: required, {domain}"));
    config.listener.push_str("forwardedCertificate: {names: ['dns:x.example']}");
    let text = String::from_utf8_lossy(&config.refused().stderr).into_owned();
    assert!(text.contains("trust domains vouch for SPIFFE IDs alone"), "{text}");
}

#[test]
fn other_protocols_are_not_spoken() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let gateway = Config::of(&server.url()).start();
    // AV-76
    let connect = raw(gateway.address, b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!((400..500).contains(&connect.status), "{connect:?}");
    let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
    std::io::Write::write_all(&mut stream, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    let mut said = String::new();
    drop(std::io::Read::read_to_string(&mut stream, &mut said));
    assert!(!said.contains(" 200 "), "{said}");
}
