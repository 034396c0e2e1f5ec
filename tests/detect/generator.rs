//! Attacks in our own words: templates with slots, to learn from. And ordinary documentation that looks
//! like them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::Deserialize;

/// Numbers that look random and are the same in every run (SplitMix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Whether something happens that happens so often in a hundred times.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(crate) fn choose<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

#[derive(Deserialize)]
pub(crate) struct Grammar {
    slots: BTreeMap<String, Vec<String>>,
    attacks: BTreeMap<String, Vec<String>>,
    class_weights: BTreeMap<String, usize>,
    tails: Vec<String>,
    wraps: Vec<String>,
    hard_negatives: Vec<String>,
}

static SLOT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{([A-Z][A-Z0-9]*)\}").unwrap());
static STRESS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(must|always|never|first|before|do not|important|required)\b").unwrap()
});

impl Grammar {
    pub(crate) fn read() -> Self {
        serde_json::from_str(include_str!("generator.json")).unwrap()
    }

    fn expand(&self, dice: &mut Dice, template: &str, names: &[String]) -> String {
        let fill = |captures: &Captures<'_>| match &captures[1] {
            "ID" => dice.choose(names).clone(),
            "CONSTX" => {
                (*dice.choose(&["API_KEY", "SERVICE_TOKEN", "GITHUB_TOKEN", "DB_URL"])).into()
            }
            slot => match self.slots.get(slot) {
                Some(values) => {
                    let value = dice.choose(values).clone();
                    self.expand(dice, &value, names)
                }
                None => captures[0].to_owned(),
            },
        };
        SLOT.replace_all(template, fill).into_owned()
    }

    fn sentences(&self, dice: &mut Dice, template: &str, names: &[String]) -> String {
        let text = self.expand(dice, template, names);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut out = text;
        for word in ["must", "have to", "need to", "should"] {
            out = out.replace(&format!("you {word} always"), &format!("you {word}"));
        }
        out.split(". ").map(capital).collect::<Vec<_>>().join(". ")
    }

    /// An attack, in words that `names` of tools stand in.
    pub(crate) fn attack(&self, dice: &mut Dice, names: &[String]) -> String {
        let total: usize = self.class_weights.values().sum();
        let mut left = dice.below(total);
        let mut class = "";
        for (name, weight) in &self.class_weights {
            class = name;
            if left < *weight {
                break;
            }
            left -= weight;
        }
        let mut template = dice.choose(&self.attacks[class]).clone();
        if !matches!(class, "prefer" | "covert") || dice.chance(25) {
            let tail: &String = dice.choose(&self.tails);
            template.push_str(tail);
        }
        let mut text = self.sentences(dice, &template, names);
        if dice.chance(18) {
            let classes: Vec<_> = self.attacks.keys().collect();
            let class = classes[dice.below(classes.len())];
            let other = dice.choose(&self.attacks[class]).clone();
            text = format!("{text} {}", self.sentences(dice, &other, names));
        }
        if dice.chance(12) {
            text = STRESS.replace_all(&text, |c: &Captures<'_>| c[0].to_uppercase()).into_owned();
        }
        if dice.chance(2) {
            text = text.to_uppercase();
        }
        let mut tag = dice.choose(&self.slots["TAG"]).clone();
        if dice.chance(30) {
            tag = tag.to_uppercase();
        }
        let wrap = dice.choose(&self.wraps);
        wrap.replace("{TAG}", &tag).replace("{X}", &text)
    }

    /// Ordinary documentation with imperatives in it.
    pub(crate) fn ordinary(&self, dice: &mut Dice, names: &[String]) -> String {
        let count = *dice.choose(&[1, 1, 2, 2, 3]);
        let one = |_| {
            let template = dice.choose(&self.hard_negatives).clone();
            self.sentences(dice, &template, names)
        };
        (0..count).map(one).collect::<Vec<_>>().join(" ")
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if first.is_alphabetic() => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}
