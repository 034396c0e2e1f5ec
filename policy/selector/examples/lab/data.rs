//! Reads the data that the selector is trained and measured with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use selector::tool::{ParameterText, ToolText};
use serde_json::Value;

/// Catalogues of tools beside `benign_tools.jsonl`, by the name that queries call them.
pub(crate) const POOLS: &[&str] =
    &["wild", "livemcp", "mcpproxy", "metatool", "bfcl_live", "sealtools"];
/// Pools whose servers are names of benchmarks or of fields of study, which no gateway has.
const WITHOUT_SERVERS: &[&str] = &["metatool", "bfcl_live", "sealtools"];

/// A tool of a catalogue.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    /// The pool and the tool's name in it: `wild|server::tool`.
    pub(crate) id: String,
    pub(crate) pool: String,
    pub(crate) server: String,
    pub(crate) text: ToolText,
    /// Whether its definition may be learned from.
    pub(crate) permissive: bool,
}

/// A request with the tools that it is about.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) text: String,
    pub(crate) expected: Vec<usize>,
    /// The family by which requests are divided into those that weights are chosen on and those that are kept back.
    pub(crate) family: String,
    pub(crate) set: String,
}

/// Every tool, and where each is.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) tools: Vec<Tool>,
    places: BTreeMap<String, usize>,
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The texts of a definition, as [`ToolText::read`] finds them.
fn tool_text(server: &str, tool: &Value) -> ToolText {
    let properties = tool["inputSchema"]["properties"].as_object();
    let parameter = |(name, schema): (&String, &Value)| ParameterText {
        name: name.clone(),
        description: text(&schema["description"]),
    };
    let title = tool["title"].as_str().or(tool["annotations"]["title"].as_str());
    ToolText {
        name: text(&tool["name"]),
        title: title.unwrap_or_default().to_owned(),
        description: text(&tool["description"]),
        server: server.to_owned(),
        parameters: properties.into_iter().flatten().map(parameter).collect(),
    }
}

impl Catalogue {
    /// Reads every catalogue of a folder.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut all = Self::default();
        for pool in POOLS {
            for row in lines(&folder.join(format!("queries/tools_{pool}.jsonl"))) {
                all.add(pool, &text(&row["tool_id"]), &row);
            }
        }
        for row in lines(&folder.join("benign_tools.jsonl")) {
            all.add("benign", &text(&row["id"]), &row);
        }
        all
    }

    fn add(&mut self, pool: &str, id: &str, row: &Value) {
        let id = format!("{pool}|{id}");
        let server = text(&row["server"]);
        let shown = if WITHOUT_SERVERS.contains(&pool) { "" } else { &server };
        let text = tool_text(shown, &row["tool"]);
        let license = row["license"].as_str().unwrap_or_default();
        let permissive = ["MIT", "Apache", "BSD", "ISC"].iter().any(|free| license.starts_with(free));
        self.places.insert(id.clone(), self.tools.len());
        self.tools.push(Tool { id, pool: pool.to_owned(), server, text, permissive });
    }

    pub(crate) fn find(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// Requests in a file of a tool and a request a line.
    pub(crate) fn pairs(&self, file: &Path, set: &str) -> Vec<Request> {
        let text = fs::read_to_string(file).unwrap();
        let pair = |line: &str| {
            let (id, request) = line.split_once('\t')?;
            let at = self.find(id)?;
            let (family, set) = (self.tools[at].server.clone(), set.to_owned());
            Some(Request { text: request.to_owned(), expected: vec![at], family, set })
        };
        text.lines().filter_map(pair).collect()
    }

    /// The requests of the benchmarks.
    pub(crate) fn queries(&self, folder: &Path) -> Vec<Request> {
        let request = |row: &Value| {
            let pool = text(&row["tools_pool"]);
            let expected = row["expected"].as_array()?.iter();
            let expected = expected.map(|id| self.find(&format!("{pool}|{}", id.as_str()?)));
            Some(Request {
                text: text(&row["query"]),
                expected: expected.collect::<Option<_>>()?,
                family: text(&row["family"]),
                set: text(&row["dataset"]),
            })
        };
        lines(&folder.join("queries/queries.jsonl")).iter().filter_map(request).collect()
    }

    /// Tools to learn the words of definitions from: those of servers that requests were written for, so that nothing
    /// is learned from servers that are kept back.
    pub(crate) fn background(&self, pairs: &[Request]) -> Vec<usize> {
        let servers: BTreeSet<&str> = pairs.iter().map(|pair| &*pair.family).collect();
        let is_learned = |tool: &Tool| {
            tool.pool == "benign" && tool.permissive && servers.contains(tool.server.as_str())
        };
        (0..self.tools.len()).filter(|at| is_learned(&self.tools[*at])).collect()
    }
}

/// Whether a family is kept back: no weight is chosen by it.
pub(crate) fn is_kept_back(family: &str) -> bool {
    let digest = json::coding::sha256([b"selector:".as_slice(), family.as_bytes()]);
    digest.first().is_none_or(|byte| *byte >= 128)
}

/// Pairs of texts of one meaning: the lines of the thesaurus.
pub(crate) fn thesaurus(file: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(file).unwrap();
    let mut pairs = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((meaning, hints)) = line.split_once('>') {
            let hints = hints.split(',').map(str::trim);
            pairs.extend(hints.map(|hint| (hint.to_owned(), meaning.trim().to_owned())));
        } else {
            let mut same = line.split('=').map(|word| word.trim().to_owned());
            let first = same.next().unwrap_or_default();
            pairs.extend(same.map(|other| (first.clone(), other)));
        }
    }
    pairs.retain(|(one, other)| !one.is_empty() && !other.is_empty());
    pairs
}

/// A generator of numbers that look random, the same ones for the same seed (SplitMix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// A number from 0 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}
