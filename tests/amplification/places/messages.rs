//! What reads messages, streams, addresses and tokens.

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::{Arc, LazyLock};

use audit_log::verify::{LogVerifier, VerifyOptions};
use bytes::Bytes;
use detection::inspect::Detector;
use gateway::base::intake::ResponseAccounts;
use gateway::crypto::jose;
use gateway::crypto::sealer::Sealer;
use gateway::mcp::wire::headers;
use gateway::mcp::wire::{decode, decode_batch};
use gateway::net::http_framing::{FramedStream, FramingCounts};
use gateway::net::unbuffered::{HeadBounds, UnbufferedConnection};
use gateway::stream::replay::read_id;
use gateway::stream::sse::SseDecoder;
use gateway::upstream::line_framing::{append_flat, read_line};
use http::Request;
use json::{Document, JsonBounds, write_canonical, write_plain};
use policy::engine::ask::{
    FormPolicy, ModelHintAction, PersonalFormData, SamplingExcessAction, SamplingPolicy,
    SecretFormAction, ServerRequestPolicy, StandingGrantAction, UrlPolicy,
};
use policy_core::subject::kind::ReadOnlyHint;
use policy_core::subject::pattern::Pattern;
use policy_core::subject::scope;
use policy_core::subject::template::{MatchWork, UriTemplate};
use policy_core::subject::uri::{ResourceUri, reduced, related};
use tokio::io::{BufReader, copy, join, sink};

use super::{Place, document, server};
use crate::inputs;

/// Messages in a batch, as by default.
const BATCH: usize = 100;

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());

fn documents() -> Place {
    Place::new("reading of JSON", inputs::documents(), |text, meter| {
        let bytes = Bytes::from(text.to_owned());
        for bounds in [JsonBounds::MESSAGE, JsonBounds::ANSWER] {
            meter.measure(text.len(), |_| Document::parse(bytes.clone(), &bounds).is_ok());
        }
    })
    .fuzzed_as(&["json"])
}

fn canonical() -> Place {
    Place::new("canonical form", inputs::documents(), |text, meter| {
        let Some(document) = document(text) else { return };
        meter.measure(text.len(), |_| {
            let mut out = Vec::new();
            write_canonical(&mut out, document.root()).is_ok()
        });
        meter.measure(text.len(), |_| {
            let mut out = Vec::new();
            write_plain(&mut out, document.root());
        });
    })
    .fuzzed_as(&["canonical"])
}

fn envelopes() -> Place {
    Place::new("reading of messages", inputs::messages(), |text, meter| {
        let bytes = Bytes::from(text.to_owned());
        meter.measure(text.len(), |_| decode(bytes.clone(), &JsonBounds::MESSAGE).is_ok());
        meter.measure(text.len(), |_| decode(bytes.clone(), &JsonBounds::ANSWER).is_ok());
        meter.measure(text.len(), |_| {
            decode_batch(bytes.clone(), &JsonBounds::MESSAGE, BATCH).is_ok()
        });
    })
    .fuzzed_as(&["message"])
}

fn streams() -> Place {
    Place::new("streams of events", inputs::streams(), |text, meter| {
        // As they arrive: each event is passed on before the next one is read.
        meter.measure(text.len(), |_| {
            let mut decoder = SseDecoder::new(text.len());
            let mut chunks = text.as_bytes().chunks(8192);
            chunks.try_for_each(|chunk| decoder.feed(chunk, drop)).is_ok()
        });
    })
    .fuzzed_as(&["events"])
}

fn lines() -> Place {
    Place::new("lines of programs", inputs::lines(), |text, meter| {
        let accounts = Arc::new(ResponseAccounts::new(usize::MAX, usize::MAX, usize::MAX));
        meter.measure(text.len(), |_| {
            let mut received = accounts.begin(&"up".into(), None);
            RUNTIME.block_on(async {
                let mut input = BufReader::new(text.as_bytes());
                while read_line(&mut input, text.len(), &mut received).await.is_ok() {}
            });
        });
        meter.measure(text.len(), |_| {
            let mut line = Vec::new();
            text.as_bytes().chunks(8192).for_each(|part| append_flat(&mut line, part));
            line
        });
    })
    .fuzzed_as(&["lines"])
}

fn framing() -> Place {
    let mut recipes = inputs::headers();
    recipes.extend(inputs::lines());
    Place::new("heads of requests", recipes, |text, meter| {
        let request = format!("POST /mcp HTTP/1.1\r\nhost: a\r\nx: {text}\r\n\r\n");
        meter.measure(request.len(), |_| {
            let counts = Arc::new(FramingCounts::default());
            let mut stream = FramedStream::new(request.as_bytes(), counts);
            RUNTIME.block_on(async { copy(&mut stream, &mut sink()).await.is_ok() })
        });
    })
    .fuzzed_as(&["framing"])
}

fn responses() -> Place {
    let mut recipes = inputs::headers();
    recipes.extend(inputs::streams());
    Place::new("responses of servers on streams", recipes, |text, meter| {
        let body = format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
        let whole = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{body}");
        let long = format!("HTTP/1.1 200 OK\r\nx: {text}\r\ncontent-length: 0\r\n\r\n");
        for response in [whole, long] {
            meter.measure(response.len(), |_| {
                let server = join(response.as_bytes(), sink());
                let bounds = HeadBounds { head: 16 * 1024, before_body: 64 * 1024 };
                let mut connection = UnbufferedConnection::new(server, bounds);
                RUNTIME.block_on(async {
                    let request = Request::new(Bytes::new()).map(Into::into);
                    connection.send(request).await.ok()?;
                    // As they arrive: each part is passed on before the next one is read.
                    while poll_fn(|cx| connection.poll_data(cx)).await.transpose().ok()?.is_some() {
                    }
                    Some(())
                })
            });
        }
    })
    .fuzzed_as(&["response"])
}

fn questions() -> Place {
    let hosts = vec![Pattern::new("*")];
    let policy = ServerRequestPolicy {
        forms: Some(FormPolicy {
            secrets: SecretFormAction::Refuse,
            personal: PersonalFormData::default(),
            standing: StandingGrantAction::Refuse,
        }),
        urls: Some(UrlPolicy { hosts, standing: StandingGrantAction::Refuse }),
        sampling: Some(SamplingPolicy {
            max_tokens: 100,
            messages: 1_000_000,
            size: 16 << 20,
            answer_size: 16 << 20,
            over: SamplingExcessAction::Refuse,
            hints: ModelHintAction::Drop,
        }),
        named: Some(server("up")),
        ..ServerRequestPolicy::default()
    };
    Place::new("questions of servers", inputs::questions(), move |text, meter| {
        let Some(document) = document(text) else { return };
        let method = document.root().get("method").and_then(json::Value::as_str).unwrap();
        let params = document.root().get("params");
        meter.measure(text.len(), |budget| {
            let asked = [(Cow::Borrowed(&*method), params)];
            policy.decide_all(asked, ReadOnlyHint::Absent, budget).is_ok()
        });
        meter.measure(text.len(), |_| policy.terms(&method, params));
    })
    .of(&[Detector::ServerRequests])
}

/// Everything that reads messages.
pub(super) fn messages() -> Vec<Place> {
    vec![
        documents(),
        canonical(),
        envelopes(),
        streams(),
        lines(),
        framing(),
        responses(),
        questions(),
    ]
}

fn uris() -> Place {
    Place::new("forms of URIs", inputs::uris(), |text, meter| {
        for parse in [ResourceUri::parse, ResourceUri::listed, ResourceUri::template] {
            meter.measure(text.len(), |_| parse(text).is_ok());
        }
        if let Ok(uri) = ResourceUri::parse(text) {
            meter.measure(text.len(), |_| related(uri.as_str()).count());
            meter.measure(text.len(), |_| reduced(uri.as_str()).into_owned());
            let template = UriTemplate::read("http://a.example/{+a}{b}{/c*}").unwrap();
            meter.measure(text.len(), |_| template.matches(&uri, &mut MatchWork::default()));
        }
        meter.measure(text.len(), |_| UriTemplate::read(text));
    })
    .of(&[Detector::ResourceUris])
    .fuzzed_as(&["uri"])
}

fn scopes() -> Place {
    Place::new("scopes", inputs::headers(), |text, meter| {
        meter.measure(text.len(), |_| scope::of_url(text));
        meter.measure(text.len(), |_| scope::of_challenge(&format!("Bearer scope=\"{text}\"")));
        meter.measure(text.len(), |_| scope::writes(text));
        meter.measure(text.len(), |_| scope::is_lasting_url(text));
    })
    .of(&[Detector::WriteScopes])
}

/// Tokens, sealed texts, and other headers.
fn tokens() -> Vec<Place> {
    let sealer = Sealer::new(&[vec![7; 32]]).unwrap();
    vec![
        Place::new("tokens", inputs::headers(), |text, meter| {
            meter.measure(text.len(), |_| jose::said(text));
            meter.measure(text.len(), |_| jose::said_header(text));
        })
        .fuzzed_as(&["jwt", "dpop"]),
        Place::new("sealed texts", inputs::headers(), move |text, meter| {
            meter.measure(text.len(), |_| sealer.open(&[b"a"], text));
            meter.measure(text.len(), |_| read_id(text).is_some());
        })
        .fuzzed_as(&["seal", "session"]),
        Place::new("mirrored headers", inputs::headers(), |text, meter| {
            meter.measure(text.len(), |_| headers::decode(text).is_some());
            meter.measure(text.len(), |_| headers::encode(text));
        })
        .fuzzed_as(&["mirrored"]),
    ]
}

/// Audit logs, which a verifier reads from the hands of those whom it verifies.
fn logs() -> Place {
    let mut recipes = inputs::lines();
    recipes.extend(inputs::documents());
    Place::new("audit logs", recipes, |text, meter| {
        meter.measure(text.len(), |_| {
            let mut verifier = LogVerifier::new(VerifyOptions::default());
            verifier.read("log", &mut text.as_bytes()).is_ok()
        });
    })
    .fuzzed_as(&["audit"])
}

/// Everything that reads single texts.
pub(super) fn texts() -> Vec<Place> {
    let mut all = vec![uris(), scopes(), logs()];
    all.extend(tokens());
    all
}
