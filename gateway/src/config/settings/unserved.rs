//! Tracks the servers that a purpose does not need, such as a stdio process for one route. Missing variables and secrets of these
//! servers are not problems of its configuration, and none of these servers is kept in it.

use std::collections::BTreeSet;

use super::problem::ConfigProblem;
use super::variables::{self, SubstitutionProblems, VariableLookup};
use super::yaml::{NodeKind, YamlNode};
use super::{RouteSelectionError, Settings, chosen};

/// The key of the server list.
const SECTION: &str = "servers";
/// The key of a server's name, by which the rest of the file refers to it.
const NAME: &str = "name";

/// The servers that are not needed, such as those that only other routes use, by their index in `/servers`; empty if all are needed.
#[derive(Debug, Default)]
pub(super) struct UnneededServers {
    /// The indices of these servers.
    all: BTreeSet<usize>,
    /// Those that refer to a variable that is not set; problems that may follow from it are waived.
    incomplete: BTreeSet<usize>,
    /// The problems that were waived so far.
    pub(super) waived: Vec<ConfigProblem>,
}

impl UnneededServers {
    /// The servers that the route `asked`, or the only one there is, does not use. Empty if the route or its
    /// servers cannot be determined: all servers are needed then.
    pub(super) fn of(root: &YamlNode, asked: Option<&str>, lookup: VariableLookup<'_>) -> Self {
        let all = other_servers(root, asked, lookup).unwrap_or_default();
        Self { all, ..Self::default() }
    }

    /// Every server, for a purpose that needs none.
    pub(super) fn every(root: &YamlNode) -> Self {
        let all = (0..items(root, "/servers").unwrap_or_default()).collect();
        Self { all, ..Self::default() }
    }

    /// Substitutes variables in every scalar. In a server that is not needed, only the name must be complete.
    pub(super) fn substitute(
        &mut self,
        root: &mut YamlNode,
        lookup: VariableLookup<'_>,
        problems: &mut Vec<ConfigProblem>,
    ) {
        let mut left = SubstitutionProblems::default();
        let NodeKind::Mapping(sections) = &mut root.kind else {
            variables::substitute(root, lookup, &mut left);
            problems.extend(left.all());
            return;
        };
        for (key, section) in sections {
            match &mut section.kind {
                NodeKind::Sequence(servers) if key.text == SECTION => {
                    for (place, server) in servers.iter_mut().enumerate() {
                        self.substitute_server(place, server, lookup, &mut left);
                    }
                }
                NodeKind::Sequence(_) | NodeKind::Mapping(_) | NodeKind::Scalar(_) => {
                    variables::substitute(section, lookup, &mut left);
                }
            }
        }
        problems.extend(left.all());
    }

    /// Substitutes variables in one server.
    fn substitute_server(
        &mut self,
        place: usize,
        server: &mut YamlNode,
        lookup: VariableLookup<'_>,
        left: &mut SubstitutionProblems,
    ) {
        let members = match &mut server.kind {
            NodeKind::Mapping(members) if self.all.contains(&place) => members,
            NodeKind::Mapping(_) | NodeKind::Sequence(_) | NodeKind::Scalar(_) => {
                variables::substitute(server, lookup, left);
                return;
            }
        };
        for (key, member) in members {
            if key.text == NAME {
                variables::substitute(member, lookup, left);
                continue;
            }
            // The lookup records every variable, so that it is kept from programs even if one before it is not set.
            variables::look_up(member, lookup);
            let mut of_member = SubstitutionProblems::default();
            variables::substitute(member, lookup, &mut of_member);
            if !of_member.unset.is_empty() {
                self.incomplete.insert(place);
            }
            self.waived.extend(of_member.unset);
            left.malformed.extend(of_member.malformed);
        }
    }

    /// Whether the value at this JSON Pointer belongs to a server that is not needed.
    pub(super) fn is_within(&self, at: &str) -> bool {
        place(at).is_some_and(|place| self.all.contains(&place))
    }

    /// Whether problems at this JSON Pointer are waived, because they may follow from a variable that is not set.
    pub(super) fn waives(&self, at: &str) -> bool {
        place(at).is_some_and(|place| self.incomplete.contains(&place))
    }

    /// Whether `settings` still contains an incomplete server, given the `names` of all servers in the file.
    pub(super) fn is_kept(&self, names: &[Box<str>], settings: &Settings) -> bool {
        let mut incomplete = self.incomplete.iter().filter_map(|place| names.get(*place));
        incomplete.any(|name| settings.servers.iter().any(|kept| kept.name.as_str() == &**name))
    }
}

/// The index of the server that the value at this JSON Pointer belongs to; `None` for its name.
fn place(at: &str) -> Option<usize> {
    let mut parts = at.strip_prefix('/')?.splitn(3, '/');
    let (section, place, rest) = (parts.next()?, parts.next()?, parts.next());
    let is_name = rest == Some(NAME);
    (section == SECTION && !is_name).then(|| place.parse().ok()).flatten()
}

/// The error if the configuration has several routes and none is `asked` for, or if it lacks the one that is; `None` if
/// the route is clear, or the routes cannot be determined.
pub(super) fn route_error(
    root: &YamlNode,
    asked: Option<&str>,
    lookup: VariableLookup<'_>,
) -> Option<RouteSelectionError> {
    let paths = paths(root, lookup).filter(|paths| !paths.is_empty())?;
    chosen(asked, paths.iter().map(String::as_str)).err()
}

/// The paths of all routes; `None` if they cannot be determined.
fn paths(root: &YamlNode, lookup: VariableLookup<'_>) -> Option<Vec<String>> {
    let path = |n| variables::expanded(root.node(&format!("/routes/{n}/path"))?, lookup);
    (0..items(root, "/routes")?).map(path).collect()
}

/// The number of items in the sequence at this JSON Pointer.
fn items(root: &YamlNode, at: &str) -> Option<usize> {
    match &root.node(at)?.kind {
        NodeKind::Sequence(items) => Some(items.len()),
        NodeKind::Mapping(_) | NodeKind::Scalar(_) => None,
    }
}

/// The indices of the servers that the route does not use; `None` if they cannot be determined.
fn other_servers(
    root: &YamlNode,
    asked: Option<&str>,
    lookup: VariableLookup<'_>,
) -> Option<BTreeSet<usize>> {
    let text = |at: &str| variables::expanded(root.node(at)?, lookup);
    let items = |at: &str| items(root, at);
    let paths = paths(root, lookup)?;
    let wanted = chosen(asked, paths.iter().map(String::as_str)).ok()?;
    let mut served = BTreeSet::new();
    for (n, _) in paths.iter().enumerate().filter(|(_, path)| *path == wanted) {
        let list = format!("/routes/{n}/servers");
        for i in 0..items(&list)? {
            served.insert(text(&format!("{list}/{i}"))?);
        }
    }
    let mut others = BTreeSet::new();
    for n in 0..items("/servers")? {
        if !served.contains(&text(&format!("/servers/{n}/name"))?) {
            others.insert(n);
        }
    }
    Some(others)
}
