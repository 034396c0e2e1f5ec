//! What ordinary texts cost: the budget of a message has to leave room for them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use detection::content::{ContentPolicy, ContentProfile, ContentRecipient, Direction, Handlings, SeenTools};
use detection::inspect;
use e2e::gateway::root;
use policy_core::base::work::WorkBudget;
use policy_core::subject::pattern::Pattern;
use serde_json::{Map, Value, json};

use crate::places::{document, server};

/// The variable with a folder of further texts: `.jsonl` with a text or a tool in each line, or any text.
const FOLDER: &str = "PORTCULLIS_ORDINARY_TEXTS";
/// The least and the greatest length of a message that is made of texts.
const LEAST: usize = 16 << 10;
const MOST: usize = 128 << 10;

/// An ordinary text, and what it is.
#[derive(Debug)]
pub(crate) struct Ordinary {
    pub(crate) name: String,
    pub(crate) text: String,
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    all.sort();
    let mut out = Vec::new();
    for path in all {
        if path.is_dir() {
            out.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            out.push(path);
        }
    }
    out
}

/// Cuts texts into messages: long ones into several, short ones together.
fn messages(name: &str, texts: impl Iterator<Item = String>) -> Vec<Ordinary> {
    let mut all = Vec::new();
    let mut now = String::new();
    for text in texts {
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (part, more) = rest.split_at(rest.floor_char_boundary(MOST));
            now.push_str(part);
            now.push('\n');
            rest = more;
            if now.len() >= LEAST {
                all.push(Ordinary { name: format!("{name} {}", all.len()), text: std::mem::take(&mut now) });
            }
        }
    }
    all
}

fn read(folder: &str, ending: &str) -> Vec<Ordinary> {
    let texts = files(&root().join(folder), ending).into_iter();
    messages(&format!("{folder}/*{ending}"), texts.filter_map(|path| fs::read_to_string(path).ok()))
}

fn lines(of: impl Fn(usize) -> String) -> String {
    let mut out = String::new();
    for n in 0.. {
        if out.len() >= 4 * LEAST {
            break;
        }
        out.push_str(&of(n));
        out.push('\n');
    }
    out
}

fn mixed(n: usize) -> usize {
    n.wrapping_mul(0x9e37_79b9).wrapping_add(n >> 3) & 0xffff_ffff
}

fn generated() -> Vec<Ordinary> {
    let all = [
        ("CSV of people", lines(|n| format!("{n},Maria Example {n},maria.example{n}@example.org,+44 20 7946 0{:03},1987-03-{:02},{}.{:02}", n % 1000, n % 28 + 1, mixed(n) % 10_000, n % 100))),
        ("CSV of numbers", lines(|n| format!("{},{}.{:04},{},-{}.5e-3,{:08x}", n, mixed(n) % 1000, mixed(n) % 9999, mixed(n), n % 17, mixed(n)))),
        ("log", lines(|n| format!("2026-03-{:02}T11:{:02}:{:02}.{:03}Z INFO [worker-{}] c.e.orders.OrderService - order {} took {} ms from 10.2.{}.{} trace={:08x}{:08x} GET /api/v2/orders/{}?page={}", n % 28 + 1, n % 60, n % 60, n % 1000, n % 8, mixed(n), n % 700, n % 250, n % 250, mixed(n), mixed(n + 7), n, n % 20))),
        ("access log", lines(|n| format!("203.0.113.{} - - [12/Mar/2026:10:{:02}:{:02} +0000] \"GET /a/b{}.html?q=x%20y&id={} HTTP/1.1\" 200 {} \"https://www.example.com/search?q=shoes\" \"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\"", n % 250, n % 60, n % 60, n, mixed(n), mixed(n) % 50_000))),
        ("list of links", lines(|n| format!("- [The title of page {n}](https://www.example.com/pages/{n}/a-title-of-a-page?ref={}) by [author {}](https://example.org/u/{})", mixed(n), n % 50, n % 50))),
        ("HTML table", lines(|n| format!("<tr class=\"row {}\" style=\"color: #333\"><td><a href=\"/item/{n}\" title=\"Item {n}\">Item {n}</a></td><td>{} &euro;</td><td><img src=\"/i/{n}.png\" alt=\"\"></td></tr>", if n % 2 == 0 { "even" } else { "odd" }, mixed(n) % 900))),
        ("hashes", lines(|n| format!("{:08x}{:08x}{:08x}{:08x}{:08x}  ./src/file_{n}.rs", mixed(n), mixed(n + 1), mixed(n + 2), mixed(n + 3), mixed(n + 4)))),
        ("UUIDs", lines(|n| format!("{:08x}-{:04x}-4{:03x}-a{:03x}-{:08x}{:04x}", mixed(n), n & 0xffff, n & 0xfff, n & 0xfff, mixed(n + 9), n & 0xffff))),
        ("base64", STANDARD.encode(lines(|n| format!("{:08x} words of a file {}", mixed(n), mixed(n + 1))))),
        ("base64 of bytes", STANDARD.encode((0..3 * LEAST).map(|n| (mixed(n) >> 13) as u8).collect::<Vec<_>>())),
        ("base64 in lines", lines(|n| STANDARD.encode((0..57).map(|k| (mixed(n * 57 + k) >> 11) as u8).collect::<Vec<_>>()))),
        ("Chinese", lines(|n| format!("第{n}条 本系统用于管理客户订单和库存，请在提交之前检查所有字段。如果数据不完整，系统会返回错误信息。"))),
        ("Japanese", lines(|n| format!("{n}. このツールは指定されたリポジトリのファイル一覧を取得します。パスを省略するとルートになります。"))),
        ("Korean", lines(|n| format!("{n}. 이 도구는 지정된 저장소의 파일 목록을 가져옵니다. 경로를 생략하면 루트가 됩니다."))),
        ("Arabic", lines(|n| format!("{n}. يعرض هذا النظام قائمة الطلبات والمخزون، يرجى التحقق من جميع الحقول قبل الإرسال."))),
        ("Hebrew", lines(|n| format!("{n}. המערכת מציגה את רשימת ההזמנות והמלאי, יש לבדוק את כל השדות לפני השליחה."))),
        ("Hindi", lines(|n| format!("{n}. यह प्रणाली आदेशों और स्टॉक की सूची दिखाती है, कृपया भेजने से पहले सभी फ़ील्ड जाँचें।"))),
        ("Thai", lines(|n| format!("{n}. ระบบนี้แสดงรายการคำสั่งซื้อและสินค้าคงคลัง โปรดตรวจสอบทุกช่องก่อนส่ง"))),
        ("Russian", lines(|n| format!("{n}. Система показывает список заказов и остатков, проверьте все поля перед отправкой."))),
        ("Greek", lines(|n| format!("{n}. Το σύστημα εμφανίζει τη λίστα παραγγελιών, ελέγξτε όλα τα πεδία πριν την υποβολή."))),
        ("German", lines(|n| format!("{n}. Das System zeigt die Liste der Aufträge und Bestände; prüfen Sie bitte vor dem Absenden alle Felder."))),
        ("Vietnamese", lines(|n| format!("{n}. Hệ thống hiển thị danh sách đơn hàng và hàng tồn kho, vui lòng kiểm tra tất cả các trường trước khi gửi."))),
        ("emoji", lines(|n| format!("{n} 😀👍🏽 great job team! 🎉🎉 see you 👩‍👩‍👧‍👦 tomorrow ❤️ at 10 🕙"))),
        ("only emoji", lines(|_| "😀👍🏽🎉🎉👩‍👩‍👧‍👦❤️🕙".to_owned())),
        ("mathematics", lines(|n| format!("{n}: ∑_{{i=1}}^{{n}} xᵢ² ≤ ∫₀^∞ f(x) dx ⇒ ∀ε>0 ∃δ: |x−y|<δ, ½·¾ ≈ ⅜, 10⁻³ m²"))),
        ("table of boxes", lines(|n| format!("│ {n:>6} │ {:<20} │ {:>10} │", format!("item {n}"), mixed(n)))),
        ("prices in tables", lines(|n| format!("| {n} | ACME {n} | 4{:03} {:04} | {} |", n % 1000, mixed(n) % 10_000, mixed(n)))),
        ("telephone numbers", lines(|n| format!("Branch {n}: +49 30 {:07}, fax +49 30 {:07}", mixed(n) % 10_000_000, mixed(n + 1) % 10_000_000))),
        ("addresses", lines(|n| format!("user{n}@example.com, first.last{n}@mail.example.org; "))),
        ("escaped JSON", lines(|n| format!("{{\\\"id\\\":{n},\\\"name\\\":\\\"a\\\\nb\\\",\\\"path\\\":\\\"C:\\\\\\\\Users\\\\\\\\u{n}\\\"}}"))),
        ("percent", lines(|n| format!("https://example.com/s?q=%E4%BD%A0%E5%A5%BD+{n}&u=https%3A%2F%2Fexample.org%2Fa%2F{n}%3Fb%3Dc"))),
        ("minified script", lines(|n| format!("!function(e,t){{var r=t[{n}];if(r&&r.a_b){{for(var i=0;i<r.length;i++)e[i]=r[i]^{}}}return e}}(window,document);", mixed(n))).replace('\n', "")),
        ("configuration with keys", lines(|n| format!("service_{n}:\n  api_key: ${{API_KEY_{n}}}\n  password: changeme\n  token_url: https://auth.example.com/token\n  timeout: {n}s"))),
        ("instructions for people", lines(|n| format!("Step {n}: you must open the settings, call `git_push` and never share your token. Then run the tool and retry with your key."))),
    ];
    all.into_iter().map(|(name, text)| Ordinary { name: name.to_owned(), text }).collect()
}

fn given() -> Vec<Ordinary> {
    let Some(folder) = env::var_os(FOLDER) else { return Vec::new() };
    let mut all = Vec::new();
    for path in files(Path::new(&folder), "") {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".jsonl") {
            all.extend(messages(&name, [text].into_iter()));
            continue;
        }
        let rows: Vec<Value> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let texts = |row: &Value| match (&row["text"], &row["tool"]) {
            (Value::String(text), _) => text.clone(),
            (_, Value::Null) => row.to_string(),
            (_, tool) => tool.to_string(),
        };
        all.extend(messages(&name, rows.iter().map(texts)));
        let long = rows.iter().map(texts).filter(|text| text.len() >= LEAST);
        all.extend(long.map(|text| Ordinary { name: format!("one of {name}"), text }));
        if rows.iter().all(|row| row["tool"].is_object()) {
            let rows: Vec<_> = rows.iter().map(|row| row["tool"].clone()).collect();
            for some in rows.chunks(100) {
                all.push(Ordinary { name: format!("list of {name}"), text: Value::from(some.to_vec()).to_string() });
            }
        }
    }
    all
}

pub(crate) fn all() -> Vec<Ordinary> {
    let mut all = generated();
    for (folder, ending) in [("docs", ".md"), ("config", ".json"), ("policy", ".rs"), ("gateway/src/exchange", ".rs"), ("deploy", ".yaml"), ("tests/e2e", ".json")] {
        all.extend(read(folder, ending));
    }
    all.extend(given());
    all
}

/// Handlings in which every detector that can does `how`, and the others have their defaults.
fn each(how: &str, direction: Direction) -> Handlings {
    const KEYS: [&str; 12] = ["hiddenCharacters", "activeMarkup", "links", "secrets", "identifiers", "contacts", "plantedInstructions", "toolDirections", "placeholders", "canaries", "carriedData", "mediaTypes"];
    let can = |key: &&str| {
        let one: Handlings = serde_json::from_value(json!({ *key: how })).unwrap();
        one.misused(direction).next().is_none()
    };
    let map: Map<_, _> = KEYS.iter().filter(|key| can(key)).map(|key| ((*key).to_owned(), Value::from(how))).collect();
    serde_json::from_value(map.into()).unwrap()
}

pub(crate) struct Spent {
    pub(crate) name: String,
    pub(crate) how: String,
    pub(crate) bytes: usize,
    pub(crate) units: u64,
    pub(crate) nanos: u128,
}

pub(crate) fn spent(of: &[Ordinary]) -> Vec<Spent> {
    let mut all = Vec::new();
    let usual = Handlings::default();
    let mut policies = vec![("default".to_owned(), Direction::Result, usual)];
    for how in ["audit", "annotate", "wrap", "strip", "defang", "redact", "block"] {
        policies.push((how.to_owned(), Direction::Result, each(how, Direction::Result)));
    }
    for how in ["audit", "redact"] {
        policies.push((format!("{how}, arguments"), Direction::Argument, each(how, Direction::Argument)));
    }
    for (how, direction, handlings) in policies {
        let shows = ContentProfile { servers: vec![Pattern::new("crm")], results: serde_json::from_value(json!({"identifiers":"audit"})).unwrap(), ..ContentProfile::default() };
        let mut profile = ContentProfile { servers: vec![Pattern::new("*")], link_hosts: vec![Pattern::new("*.example")], fence: true, ..ContentProfile::default() };
        match direction {
            Direction::Result => profile.results = handlings,
            Direction::Argument => profile.arguments = handlings,
        }
        let contents = ContentPolicy::new(vec![shows, profile]).with_canaries(&["canary-7f3a9c21".to_owned()]).unwrap();
        let shown = document(r#""Card 4539 1488 0343 6467""#).unwrap();
        let _seen = contents.look(&server("crm"), Direction::Result, "ana", shown.root(), &WorkBudget::unlimited());
        for Ordinary { name, text } in of {
            let quoted = Value::from(text.as_str()).to_string();
            let mut forms = vec![(name.clone(), format!(r#"{{"content":[{{"type":"text","text":{quoted}}}]}}"#))];
            if document(text).is_some() {
                forms.push((format!("{name} as value"), format!(r#"{{"content":[],"structuredContent":{{"v":{text}}}}}"#)));
            }
            for (name, message) in forms {
                let Some(document) = document(&message) else { continue };
                let budget = WorkBudget::unlimited();
                let tools = SeenTools { own: &|_| false, others: Some(&|_| true) };
                let reader = ContentRecipient { caller: "ana", tools: Some(tools) };
                let started = std::time::Instant::now();
                match direction {
                    Direction::Result => drop(contents.look_but(&server("up"), reader, document.root(), &[], &budget)),
                    Direction::Argument => drop(contents.look(&server("up"), direction, "ana", document.root(), &budget)),
                }
                all.push(Spent { name, how: how.clone(), bytes: message.len(), units: budget.spent(), nanos: started.elapsed().as_nanos() });
            }
        }
    }
    // As a definition or an instruction.
    for Ordinary { name, text } in of {
        let quoted = if document(text).is_some() { text.clone() } else { Value::from(text.as_str()).to_string() };
        let Some(document) = document(&quoted) else { continue };
        let budget = WorkBudget::unlimited();
        let started = std::time::Instant::now();
        drop(inspect::text(document.root(), &budget));
        all.push(Spent { name: name.clone(), how: "definition".to_owned(), bytes: quoted.len(), units: budget.spent(), nanos: started.elapsed().as_nanos() });
    }
    all
}

#[test]
fn ordinary() {
    let of = all();
    let mut all = spent(&of);
    println!("{} texts, {} bytes", of.len(), of.iter().map(|one| one.text.len()).sum::<usize>());
    all.sort_by_key(|one| std::cmp::Reverse(one.units / one.bytes as u64));
    let hows: std::collections::BTreeSet<_> = all.iter().map(|one| one.how.clone()).collect();
    for how in hows {
        let some: Vec<_> = all.iter().filter(|one| one.how == how).collect();
        let at = |part: usize| { let one = &some[some.len() * part / 1000]; one.units / one.bytes as u64 };
        println!("== {how}: {} messages, max {} p99.9 {} p99 {} p90 {} median {}", some.len(), at(0), at(1), at(10), at(100), at(500));
        for one in some.iter().take(12) {
            println!("   {} {} of {} bytes: {} ns a byte, {:.2} ns a unit", one.units / one.bytes as u64, one.name, one.bytes, one.nanos / one.bytes as u128, one.nanos as f64 / one.units as f64);
        }
        let mut slow = some.clone();
        slow.sort_by_key(|one| std::cmp::Reverse(one.nanos / one.bytes as u128));
        for one in slow.iter().take(4) {
            println!("   slowest: {} ns a byte, {} units {}", one.nanos / one.bytes as u128, one.units / one.bytes as u64, one.name);
        }
    }
}
