//! Operation histograms by label set. Entries are created on first use and found without a lock, and their number
//! is bounded: label sets beyond the bound share one overflow entry.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::{Histogram, Labels, MetricValue, OTHER, OperationLabels};
use crate::mcp::protocol::method;

/// Maximum number of label sets; later ones share the overflow entry.
const MOST: usize = 1000;
/// JSON-RPC codes with a meaning of their own. Other codes are the server's choice and are left out.
const CODES: [i32; 9] =
    [-32_700, -32_600, -32_601, -32_602, -32_603, -32_000, -32_002, -32_020, -32_042];

/// The labels of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct SeriesKey<'a> {
    method: Cow<'a, str>,
    server: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    version: Option<&'static str>,
    error: Option<&'static str>,
    code: Option<i32>,
    is_overflow: bool,
}

impl<'a> SeriesKey<'a> {
    /// The labels of `what`, with the method as the peer sent it and every name that is not allowed replaced by
    /// `_OTHER`.
    fn named(what: &OperationLabels<'a>, names: &AllowedNames) -> Self {
        let method = what.method.unwrap_or(OTHER);
        let is_named = matches!(method, method::TOOLS_CALL | method::PROMPTS_GET);
        let known = |name| if names.contains(name) { name } else { OTHER };
        Self {
            method: method.into(),
            server: what.server.map(Cow::Borrowed),
            name: what.name.filter(|_| is_named).map(|name| known(name).into()),
            version: what.version,
            error: what.error,
            code: what.code.filter(|code| CODES.contains(code)),
            is_overflow: false,
        }
    }

    /// The same labels with a method that the peer made up replaced.
    fn clamped(self) -> SeriesKey<'static> {
        let owned = |text: Cow<'_, str>| text.into_owned().into();
        SeriesKey {
            method: method::clamped(&self.method).into(),
            server: self.server.map(owned),
            name: self.name.map(owned),
            version: self.version,
            error: self.error,
            code: self.code,
            is_overflow: self.is_overflow,
        }
    }

    fn labels(&self) -> Labels {
        if self.is_overflow {
            return vec![("otel.metric.overflow", "true".into())];
        }
        let mut labels: Labels = vec![("mcp.method.name", (*self.method).into())];
        if let Some(name) = &self.name {
            let is_prompt = self.method == method::PROMPTS_GET;
            let key = if is_prompt { "gen_ai.prompt.name" } else { "gen_ai.tool.name" };
            labels.push((key, (**name).into()));
            if !is_prompt {
                labels.push(("gen_ai.operation.name", "execute_tool".into()));
            }
        }
        if let Some(server) = &self.server {
            labels.push(("portcullis.server", (**server).into()));
        }
        if let Some(version) = self.version {
            labels.push(("mcp.protocol.version", version.into()));
        }
        if let Some(error) = self.error {
            labels.push(("error.type", error.into()));
        }
        if let Some(code) = self.code {
            labels.push(("rpc.response.status_code", code.to_string().into()));
        }
        labels
    }
}

/// The histograms of one operation: as clients see it (`server`), and as upstream servers answer it (`client`).
#[derive(Debug)]
struct OperationHistograms {
    server: Histogram,
    client: Histogram,
}

impl OperationHistograms {
    fn count(&self, time: Duration, upstream: Option<Duration>) {
        self.server.observe(time);
        if let Some(upstream) = upstream {
            self.client.observe(upstream);
        }
    }
}

/// The histograms of all operations.
#[derive(Debug, Default)]
pub(super) struct OperationSeries(ArcSwap<SeriesMap<'static>>);

/// The entries, by labels.
type SeriesMap<'a> =
    HashMap<SeriesKey<'a>, Arc<OperationHistograms>, BuildHasherDefault<FnvHasher>>;

/// Tool and prompt names.
pub(super) type Names = HashSet<Arc<str>, BuildHasherDefault<FnvHasher>>;

/// The tool and prompt names that are allowed as label values.
#[derive(Debug, Default)]
pub(super) struct AllowedNames {
    /// The names from the configuration.
    pub(super) configured: ArcSwap<Names>,
    /// Approved names, at most `PINNED`.
    pub(super) pinned: ArcSwap<Names>,
}

impl AllowedNames {
    fn contains(&self, name: &str) -> bool {
        self.configured.load().contains(name) || self.pinned.load().contains(name)
    }
}

/// An FNV-1a hasher. Peers can choose the keys of lookups, but no key that they chose is ever inserted.
#[derive(Debug)]
pub(super) struct FnvHasher(u64);

impl Default for FnvHasher {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for FnvHasher {
    fn write(&mut self, bytes: &[u8]) {
        // Eight bytes per step: enough to tell a few hundred operations apart, and faster than one by one.
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            self.write_u64(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_isize(&mut self, variant: isize) {
        self.write_u64(variant.cast_unsigned() as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

impl OperationSeries {
    /// Records an operation that took `time`, of which its upstream server took `upstream`.
    pub(super) fn observe(
        &self,
        what: &OperationLabels<'_>,
        names: &AllowedNames,
        time: Duration,
        upstream: Option<Duration>,
    ) {
        let known = self.0.load();
        let known: &SeriesMap<'_> = &known;
        let operation = SeriesKey::named(what, names);
        // A hit on the peer's own spelling is safe: only known methods are ever inserted.
        if let Some(sides) = known.get(&operation) {
            return sides.count(time, upstream);
        }
        let operation = operation.clamped();
        match known.get(&operation) {
            Some(sides) => sides.count(time, upstream),
            None => self.made(operation).count(time, upstream),
        }
    }

    /// The new entry for `operation`, or the overflow entry.
    fn made(&self, mut operation: SeriesKey<'static>) -> Arc<OperationHistograms> {
        if self.0.load().len() >= MOST {
            operation = SeriesKey { is_overflow: true, ..SeriesKey::default() };
        }
        let sides =
            OperationHistograms { server: Histogram::operation(), client: Histogram::operation() };
        let made = Arc::new(sides);
        // Copy on write: new label sets are rare, and readers take no lock.
        self.0.rcu(|known| {
            let mut known = SeriesMap::clone(known);
            known.entry(operation.clone()).or_insert_with(|| Arc::clone(&made));
            known
        });
        self.0.load().get(&operation).cloned().unwrap_or(made)
    }

    /// The data points as clients see the operations.
    pub(super) fn of_clients(&self) -> Vec<(Labels, MetricValue)> {
        self.read(|sides| &sides.server)
    }

    /// The data points as upstream servers answer the operations.
    pub(super) fn of_servers(&self) -> Vec<(Labels, MetricValue)> {
        self.read(|sides| &sides.client)
    }

    fn read(&self, side: fn(&OperationHistograms) -> &Histogram) -> Vec<(Labels, MetricValue)> {
        let known = self.0.load();
        let point = |(operation, sides): (&SeriesKey, &Arc<OperationHistograms>)| {
            let histogram = side(sides);
            histogram.has_any().then(|| (operation.labels(), histogram.read()))
        };
        let mut points: Vec<_> = known.iter().filter_map(point).collect();
        points.sort_by(|(one, _), (other, _)| one.cmp(other));
        points
    }
}

#[cfg(test)]
mod tests {
    use super::{AllowedNames, MOST, OperationSeries};
    use crate::metrics::OperationLabels;
    use std::time::Duration;

    #[test]
    fn whatever_a_peer_says_there_are_only_so_many() {
        let series = OperationSeries::default();
        for n in 0..i32::try_from(MOST).unwrap() + 50 {
            let server = n.to_string();
            let what = OperationLabels {
                method: Some("x/y"),
                name: Some("z"),
                server: Some(&server),
                version: None,
                error: None,
                code: Some(n),
            };
            let took = Duration::from_millis(1);
            series.observe(&what, &AllowedNames::default(), took, None);
        }
        let points = series.of_clients();
        assert!(series.of_servers().is_empty());
        assert_eq!(points.len(), MOST + 1);
        assert!(points.iter().any(|(labels, _)| labels[0].0 == "otel.metric.overflow"));
        let first = &points[0].0;
        assert_eq!((first[0].0, &*first[0].1), ("mcp.method.name", "_OTHER"));
        assert_eq!(first[1].0, "portcullis.server", "no name, no code of its own");
    }
}
