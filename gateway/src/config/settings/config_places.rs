//! The places in a configuration file of what warnings about a valid configuration are about. Errors have their places
//! already; warnings are found later, when only the compiled settings are left.

use std::ops::Range;

use super::ConfigText;
use super::yaml::{self, YamlNode};

/// The places in one configuration file.
#[derive(Debug)]
pub struct ConfigPlaces<'a> {
    source: ConfigText<'a>,
    /// `None` if the text is no YAML.
    root: Option<YamlNode>,
}

impl<'a> ConfigPlaces<'a> {
    /// The places in `source`.
    #[must_use]
    pub fn of(source: ConfigText<'a>) -> Self {
        Self { source, root: yaml::parse(source.text).ok() }
    }

    /// The place of `word` in the rule `id`, or of the rule if it does not stand in it, as a line such as
    /// `  --> FILE:31:14` with a line feed before it; empty if it is not known.
    #[must_use]
    pub fn of_rule(&self, id: &str, word: &str) -> String {
        self.shown(self.item("/policy/rules", "id", id), word)
    }

    /// The same of `word` in the constraint at this index, counted from 0.
    #[must_use]
    pub fn of_constraint(&self, index: usize, word: &str) -> String {
        let pointer = format!("/policy/constraints/{index}");
        self.shown(self.root.as_ref().and_then(|root| root.node(&pointer)), word)
    }

    /// The same of `word` in the server `name`.
    #[must_use]
    pub fn of_server(&self, name: &str, word: &str) -> String {
        self.shown(self.item("/servers", "name", name), word)
    }

    /// The item of a list whose member `key` is `name`.
    fn item(&self, list: &str, key: &str, name: &str) -> Option<&YamlNode> {
        let root = self.root.as_ref()?;
        let items = (0..).map_while(|n| root.node(&format!("{list}/{n}")));
        let is_meant = |item: &&YamlNode| {
            let member = item.node(&format!("/{key}"));
            member.is_some_and(|member| member.scalar_text() == Some(name))
        };
        items.into_iter().find(is_meant)
    }

    fn shown(&self, item: Option<&YamlNode>, word: &str) -> String {
        let Some(item) = item else { return String::new() };
        let place: Range<usize> = item.place_of_scalar(word).unwrap_or_else(|| item.span.clone());
        let ConfigText { file, text } = self.source;
        let before = text.get(..place.start.min(text.len())).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("\n  --> {file}:{line}:{column}")
    }
}

#[cfg(test)]
mod tests {
    use super::{ConfigPlaces, ConfigText};

    #[test]
    fn what_a_warning_is_about_is_found_in_the_file() {
        let text = "servers:\n- {name: up, command: nope}\npolicy:\n  rules:\n  - id: one\n    tools: [a]\n  - id: two\n    \
                    tools: [a, 'bc*']\n  constraints:\n  - {argument: /x}\n";
        let places = ConfigPlaces::of(ConfigText { file: "p.yaml", text });
        assert_eq!(places.of_rule("two", "bc*"), "\n  --> p.yaml:8:16");
        assert_eq!(places.of_rule("two", "missing"), "\n  --> p.yaml:7:5");
        assert_eq!(places.of_rule("three", "a"), "");
        assert_eq!(places.of_constraint(0, "/x"), "\n  --> p.yaml:10:16");
        assert_eq!(places.of_constraint(1, "/x"), "");
        assert_eq!(places.of_server("up", "nope"), "\n  --> p.yaml:2:23");
        assert_eq!(
            ConfigPlaces::of(ConfigText { file: "p", text: "a: [" }).of_server("up", ""),
            ""
        );
    }
}
