//! A share of some cases, and how certain it is.

/// The quantile of the normal distribution for 95 %.
const QUANTILE: f64 = 1.959_963_984_540_054;

/// How many of some cases have a property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ratio {
    /// How many have it.
    pub count: usize,
    /// How many there are.
    pub of: usize,
}

/// The bounds between which a share lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower bound of the interval.
    pub low: f64,
    /// The upper bound of the interval.
    pub high: f64,
}

impl Ratio {
    /// The ratio of the cases for which `has` is true.
    pub fn of<T>(cases: impl IntoIterator<Item = T>, has: impl Fn(T) -> bool) -> Self {
        cases.into_iter().fold(Self::default(), |ratio, case| Self {
            count: ratio.count + usize::from(has(case)),
            of: ratio.of + 1,
        })
    }

    /// The share, between 0 and 1; 1 if there is no case: nothing is wrong with none of them.
    #[must_use]
    pub fn share(self) -> f64 {
        if self.of == 0 { 1.0 } else { number(self.count) / number(self.of) }
    }

    /// The score interval of Wilson (1927), which also holds for few cases and for shares near 0 and 1.
    #[must_use]
    pub fn interval(self) -> Interval {
        if self.of == 0 {
            return Interval { low: 0.0, high: 1.0 };
        }
        let (share, n) = (self.share(), number(self.of));
        let square = QUANTILE * QUANTILE;
        let centre = (share + square / (2.0 * n)) / (1.0 + square / n);
        let spread = (share * (1.0 - share) / n + square / (4.0 * n * n)).sqrt();
        let half = QUANTILE * spread / (1.0 + square / n);
        Interval { low: (centre - half).max(0.0), high: (centre + half).min(1.0) }
    }
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "there are far fewer cases than a double counts")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_wilson() {
        // Values of the published example with 7 of 10, and of the ends.
        let near = |one: f64, other: f64| (one - other).abs() < 1e-4;
        let interval = Ratio { count: 7, of: 10 }.interval();
        assert!(near(interval.low, 0.3968) && near(interval.high, 0.8922), "{interval:?}");
        let none = Ratio { count: 0, of: 10 }.interval();
        assert!(none.low == 0.0 && near(none.high, 0.2775), "{none:?}");
        let all = Ratio { count: 10, of: 10 }.interval();
        assert!(near(all.low, 0.7225) && near(all.high, 1.0), "{all:?}");
        assert_eq!(Ratio::default().interval(), Interval { low: 0.0, high: 1.0 });
        assert_eq!(Ratio::default().share(), 1.0);
    }
}
