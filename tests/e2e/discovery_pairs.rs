//! Pairs of principals and queries: what a principal finds on a gateway with many tools of others is byte for byte what it finds
//! on one that has its own tools only.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use aws_lc_rs::digest::{SHA256, digest};
use e2e::Era;
use e2e::client::{Answer, Client, read};
use e2e::gateway::{BOB, Config, Gateway};
use e2e::server::Server;
use serde_json::{Value, json};

use crate::discovery::{annotated, found, reads, writes};

const VERBS: [&str; 15] = [
    "read",
    "list",
    "delete",
    "send",
    "create",
    "update",
    "search",
    "export",
    "archive",
    "translate",
    "refund",
    "approve",
    "book",
    "cancel",
    "print",
];
const NOUNS: [&str; 15] = [
    "file",
    "invoice",
    "customer",
    "ticket",
    "message",
    "calendar",
    "report",
    "table",
    "order",
    "payment",
    "repository",
    "photo",
    "contract",
    "shipment",
    "password",
];
/// Connections at once.
const THREADS: usize = 3;

/// How much is compared: profiles of rights, principals with each of them, and queries of each principal.
#[derive(Clone, Copy)]
struct Extent {
    profiles: usize,
    principals: usize,
    queries: usize,
}

/// Numbers that are the same in every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    const fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 33) as usize % limit
    }
}

/// All tools there are, in the order of the list.
fn catalogue() -> Vec<Value> {
    let pairs = NOUNS.iter().flat_map(|noun| VERBS.iter().map(move |verb| (*verb, *noun)));
    let tool = |(n, (verb, noun)): (usize, (&str, &str))| {
        let (name, other) = (format!("{verb}_{noun}"), NOUNS[(n * 7 + 3) % NOUNS.len()]);
        let text = format!("{verb}s a {noun} of the office. It may also touch the {other}.");
        let hints = [reads(), writes(), json!({})][n % 3].clone();
        annotated(&name, &text, &hints, &[["path!", "number!", "email"][n % 3], noun])
    };
    pairs.enumerate().map(tool).collect()
}

/// The tools that each profile may use. A fifth of all is nobody's.
fn profiles(count: usize) -> Vec<BTreeSet<String>> {
    let mut numbers = Numbers(1);
    let names: Vec<_> =
        catalogue().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    let used: Vec<_> = names.into_iter().enumerate().filter(|(n, _)| n % 5 != 0).collect();
    let chosen = |numbers: &mut Numbers| {
        let some = used.iter().filter(|_| numbers.below(4) == 0);
        some.map(|(_, name)| name.clone()).collect()
    };
    (0..count).map(|_| chosen(&mut numbers)).collect()
}

fn key(profile: usize, principal: usize) -> String {
    format!("pcl_pair-secret-{profile:04}-{principal:04}")
}

/// A gateway in front of a server with these tools, for all principals.
fn gateway(extent: Extent, rights: &[BTreeSet<String>], tools: &[Value]) -> (Gateway, Server) {
    let list = json!({ "tools": tools, "ttlMs": 3_600_000, "cacheScope": "public" });
    let up =
        Server::offering(Era::Modern, list, |_| json!({ "resultType": "complete", "content": [] }));
    let mut policy = "contact: sec@example.com\nrules:\n\
                      - {id: all, effect: allow, principals: ['group:ops'], servers: ['*'], tools: ['*']}"
        .to_owned();
    let mut config = Config::of(&up.url());
    for (profile, tools) in rights.iter().enumerate() {
        let tools: Vec<_> = tools.iter().map(String::as_str).collect();
        policy.push_str(&format!(
            "\n- {{id: p{profile}, effect: allow, principals: ['group:p{profile}'], servers: ['*'], tools: [{}]}}",
            tools.join(", ")
        ));
        for principal in 0..extent.principals {
            let hash = digest(&SHA256, key(profile, principal).as_bytes());
            let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            config.identity.push_str(&format!(
                "- {{name: k{profile}-{principal}, principal: u{profile}-{principal}, groups: [p{profile}], sha256: {hash}}}\n"
            ));
        }
    }
    config.routes = "- {path: /mcp, servers: [up], discovery: {mode: search}}".to_owned();
    (config.policy(&policy).start(), up)
}

/// A connection that is used again for each call of a client.
struct Connection {
    client: Client,
    stream: TcpStream,
}

impl Connection {
    fn open(gateway: &Gateway, era: Era, key: &str) -> Self {
        let client = gateway.client(era, key);
        let stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { client, stream }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let params = json!({ "name": tool, "arguments": arguments });
        self.stream.write_all(&self.client.call_bytes(&json!(7), &params)).unwrap();
        read(&mut self.stream)
    }
}

/// Words of tools, of the caller's and of others.
fn query(numbers: &mut Numbers) -> Value {
    let mut words = Vec::new();
    for _ in 0..=numbers.below(5) {
        let (verb, noun) = (VERBS[numbers.below(VERBS.len())], NOUNS[numbers.below(NOUNS.len())]);
        words.push(match numbers.below(5) {
            0 => verb.to_owned(),
            1 => noun.to_owned(),
            2 => format!("{verb}_{noun}"),
            3 => format!("{verb} all {noun}s"),
            _ => ["give the money back", "remove it", "who wrote to me", "天气", "trip to Rome"]
                [numbers.below(5)]
            .to_owned(),
        });
    }
    let mut asked = json!({ "query": words.join(" ") });
    if let Some(limit) = [None, Some(1), Some(3), Some(50)][numbers.below(4)] {
        asked["limit"] = limit.into();
    }
    asked
}

/// A principal, by its numbers, and the tools that it may use.
#[derive(Clone, Copy)]
struct Asker<'a> {
    profile: usize,
    principal: usize,
    own: &'a BTreeSet<String>,
}

/// Compares the answers to one principal, and returns how many were compared.
fn compare(pair: [&Gateway; 2], asker: Asker<'_>, queries: usize) -> usize {
    let Asker { profile, principal, own } = asker;
    let mut count = 0;
    let era = if principal % 2 == 0 { Era::Modern } else { Era::Legacy };
    let [mut with, mut without] =
        pair.map(|gateway| Connection::open(gateway, era, &key(profile, principal)));
    let mut numbers = Numbers((profile * 10_000 + principal) as u64);
    for _ in 0..queries {
        let asked = query(&mut numbers);
        let (one, two) = (with.call("find_tools", &asked), without.call("find_tools", &asked));
        assert_eq!((one.status, &one.body), (200, &two.body), "u{profile}-{principal} {asked}");
        let answer = one.json();
        let tools = answer["result"]["structuredContent"]["tools"].as_array().unwrap();
        let is_own = |tool: &Value| own.contains(tool["name"].as_str().unwrap());
        assert!(tools.iter().all(is_own), "u{profile}-{principal} {asked}: {answer}");
        count += tools.len();
    }
    // A name of others is described like a name of nobody. Only the id of the record differs.
    let names = catalogue();
    let hidden =
        names.iter().map(|tool| tool["name"].as_str().unwrap()).find(|name| !own.contains(*name));
    let [one, two] =
        [(&mut with, hidden.unwrap()), (&mut without, "no_such_tool")].map(|(at, name)| {
            let answer = at.call("describe_tool", &json!({ "name": name })).body;
            answer.split("\"record\":").next().unwrap().to_owned()
        });
    assert_eq!(one, two);
    assert!(count > queries, "most queries find something");
    queries
}

fn compared(extent: Extent) -> usize {
    let rights = profiles(extent.profiles);
    let (with, _all) = gateway(extent, &rights, &catalogue());
    // Another caller finds everything before, and between.
    let bob = with.client(Era::Modern, BOB);
    let count = AtomicUsize::new(0);
    for (profile, own) in rights.iter().enumerate() {
        let seen = found(&bob, "export every customer, file, photo and contract");
        assert!(!seen.iter().all(|name| own.contains(name)), "{seen:?}");
        let tools =
            catalogue().into_iter().filter(|tool| own.contains(tool["name"].as_str().unwrap()));
        let (without, _own) = gateway(extent, &rights, &tools.collect::<Vec<_>>());
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    loop {
                        let principal = next.fetch_add(1, Ordering::Relaxed);
                        if principal >= extent.principals {
                            return;
                        }
                        let asker = Asker { profile, principal, own };
                        let done = compare([&with, &without], asker, extent.queries);
                        count.fetch_add(done, Ordering::Relaxed);
                    }
                });
            }
        });
    }
    count.into_inner()
}

#[test]
fn what_principals_find_is_what_they_find_where_nothing_else_is() {
    assert_eq!(compared(Extent { profiles: 3, principals: 70, queries: 12 }), 2520);
}

#[test]
#[ignore = "takes five minutes; see docs/discovery.md"]
fn a_hundred_thousand_pairs_of_principal_and_query_find_nothing_of_others() {
    assert_eq!(compared(Extent { profiles: 20, principals: 15, queries: 334 }), 100_200);
}
