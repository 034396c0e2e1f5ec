//! The picture of the rooms in `docs/architecture.md`, drawn from the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use e2e::golden;

use crate::{Module, declared_module, modules, named, product, root};

/// The crates whose rooms are drawn, with their sources.
const PICTURES: &[(&str, &str)] = &[
    ("gateway", "gateway/src"),
    ("policy", "policy/src"),
    ("detection", "policy/detection/src"),
    ("policy-core", "policy/core/src"),
    ("selector", "policy/selector/src"),
];

/// A top-level module of a crate.
struct Room {
    name: String,
    /// The first sentence of its `//!` page.
    caption: String,
    /// The rooms that its modules name by a path.
    uses: BTreeSet<String>,
}

/// The rooms of a crate, foundations first.
fn rooms(src: &Path) -> Vec<Room> {
    let modules = modules(src);
    let lib = product(&modules[&Vec::new()]);
    let order: Vec<&str> = lib.lines().filter_map(declared_module).collect();
    let room = |name: &&str| {
        let page = &modules[&vec![(*name).to_owned()]];
        let within = modules.iter().filter(|(module, _)| module.first().is_some_and(|n| n == name));
        let uses = within.flat_map(|(module, file)| uses(module, file, &order));
        let uses = uses.filter(|used| used != name).collect();
        Room { name: (*name).to_owned(), caption: caption(page), uses }
    };
    order.iter().map(room).collect()
}

fn uses(module: &Module, file: &Path, order: &[&str]) -> Vec<String> {
    let tops = named(module, &product(file)).into_iter().filter_map(|path| path.into_iter().next());
    tops.filter(|top| order.contains(&top.as_str())).collect()
}

/// The first sentence of a module's page, without its markup.
fn caption(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    let lines = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let said = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let end = said.find(". ").unwrap_or(said.trim_end_matches('.').len());
    said[..end].replace(['[', ']', '`', '"'], "")
}

/// Of what each room uses, that which it does not also reach through another room.
fn reduced(rooms: &[Room]) -> BTreeMap<&str, Vec<&str>> {
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut kept = BTreeMap::new();
    // Foundations first, so what a room uses is complete when the room is looked at.
    for room in rooms {
        let direct: BTreeSet<&str> = room.uses.iter().map(String::as_str).collect();
        let through = |used: &&str| direct.iter().any(|other| reached[other].contains(used));
        kept.insert(&*room.name, direct.iter().filter(|used| !through(used)).copied().collect());
        let further = direct.iter().flat_map(|used| reached[used].iter().copied());
        let all = direct.iter().copied().chain(further).collect();
        reached.insert(&room.name, all);
    }
    kept
}

/// The rooms as a Mermaid flowchart, what is used below what uses it.
fn drawn(rooms: &[Room]) -> String {
    let mut out = "```mermaid\nflowchart TD\n".to_owned();
    for room in rooms.iter().rev() {
        writeln!(out, "  {}[\"<b>{}</b><br/>{}\"]", room.name, room.name, room.caption).unwrap();
    }
    let reduced = reduced(rooms);
    for room in rooms.iter().rev() {
        for used in &reduced[&*room.name] {
            writeln!(out, "  {} --> {used}", room.name).unwrap();
        }
    }
    out + "```\n"
}

/// Puts what is drawn between the marks of its crate.
fn with_picture(page: &str, name: &str, drawn: &str) -> String {
    let (begin, end) = (format!("<!-- rooms of {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    format!("{before}{begin}{drawn}{end}{after}")
}

#[test]
fn the_picture_of_the_rooms_is_drawn_from_the_code() {
    let file = root().join("docs/architecture.md");
    let page = fs::read_to_string(&file).unwrap();
    let page = PICTURES.iter().fold(page, |page, (name, src)| {
        let rooms = rooms(&root().join(src));
        assert!(rooms.iter().all(|room| !room.caption.is_empty()), "a room has no page");
        with_picture(&page, name, &drawn(&rooms))
    });
    golden::compare([(&*file, &*page)]);
}

/// Every file and every function that the page points at is there.
#[test]
fn what_the_page_of_the_architecture_points_at_exists() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let mut seen = 0;
    for link in links.filter(|link| link.starts_with("../")) {
        let path = link.split('#').next().unwrap();
        assert!(root().join("docs").join(path).exists(), "{link}");
        seen += 1;
    }
    assert!(seen > 20, "the links were not found");
    // `[name](../file.rs)`: the function or type of that name stands in the file.
    for (before, rest) in page.split("](../").skip(1).zip(page.split("](../")).map(|(a, b)| (b, a))
    {
        let Some((_, said)) = before.rsplit_once("[`") else { continue };
        let Some(said) = said.strip_suffix('`') else { continue };
        let file = rest.split(')').next().unwrap();
        let is_name = said.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
        if !is_name || !file.ends_with(".rs") {
            continue;
        }
        let name = said.rsplit("::").next().unwrap();
        // A module is in the file that has its name; a crate is named like its folder.
        if Path::new(file).file_stem().is_some_and(|stem| stem == name) || file.ends_with("lib.rs")
        {
            continue;
        }
        let text = fs::read_to_string(root().join(file)).unwrap();
        let defined = ["fn ", "struct ", "enum ", "trait ", "type ", "mod ", "const ", "static "]
            .iter()
            .any(|kind| contains_word(&text, &format!("{kind}{name}")));
        // `Type::function`: an `impl` of the type stands in the file too.
        let owner = said.rsplit("::").nth(1);
        let of_owner = owner.is_none_or(|owner| {
            let mut impls = text.lines().filter(|line| line.starts_with("impl"));
            impls.any(|line| contains_word(line, &format!(" {owner}")))
        });
        assert!(defined && of_owner, "`{said}` is not in {file}");
    }
}

/// Whether `text` contains `words` such that no longer name begins with the last of them.
fn contains_word(text: &str, words: &str) -> bool {
    let is_longer = |rest: &str| rest.starts_with(|c: char| c == '_' || c.is_alphanumeric());
    text.match_indices(words).any(|(at, _)| !is_longer(&text[at + words.len()..]))
}
