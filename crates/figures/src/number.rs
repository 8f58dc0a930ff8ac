//! Numbers as people read them: a few digits and a unit that fits.

/// What a number counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things that are counted: epochs, peers, or a loss.
    Count,
    /// Seconds of time.
    Seconds,
    /// Bytes, in powers of 1000.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// A share from 0 to 1, shown in per cent.
    Share,
    /// How many times as much.
    Times,
    /// Any other unit, shown as it is written.
    Other(String),
}

/// One step of a unit: how much it stands for, and its symbol.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) size: f64,
    pub(crate) symbol: String,
}

const SECONDS: [(f64, &str); 5] = [(1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h")];
const BYTES: [(f64, &str); 5] = [(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")];
const RATES: [(f64, &str); 5] = [(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s")];

impl Unit {
    /// The number with its unit: `12.3 s`, `4.8 MB`, `98.6 %`. What is no number is a dash.
    ///
    /// ```
    /// use nettorrent_figures::Unit;
    ///
    /// assert_eq!(Unit::Seconds.format(12.34), "12.3 s");
    /// assert_eq!(Unit::Bytes.format(4_800_000.0), "4.8 MB");
    /// assert_eq!(Unit::Share.format(0.986), "98.6 %");
    /// assert_eq!(Unit::Times.format(f64::NAN), "–");
    /// ```
    pub fn format(&self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        let step = self.step(value.abs());
        let number = if *self == Unit::Share { share(value) } else { digits(value / step.size) };
        if step.symbol.is_empty() { number } else { format!("{number} {}", step.symbol) }
    }

    /// A mean and its deviation in one unit: `12.3 ± 0.4 s`. Without a deviation, only the mean.
    pub fn format_with_deviation(&self, mean: f64, deviation: f64) -> String {
        if !mean.is_finite() || !deviation.is_finite() || deviation == 0.0 {
            return self.format(mean);
        }
        let step = self.step(mean.abs());
        let (mean, deviation) = (mean / step.size, deviation / step.size);
        let places = decimals(mean).max(if deviation < 0.1 { 2 } else { 1 }).min(3);
        let (mean, deviation) = (fixed(mean, places), fixed(deviation, places));
        // A deviation that is too small to be seen would only pretend to be none.
        let is_seen = deviation.contains(|character: char| ('1'..='9').contains(&character));
        let number = if is_seen { format!("{mean} ± {deviation}") } else { mean };
        if step.symbol.is_empty() { number } else { format!("{number} {}", step.symbol) }
    }

    /// The step of the unit in which numbers up to `largest` read best.
    pub(crate) fn step(&self, largest: f64) -> Step {
        let of = |steps: &[(f64, &str)], reach: f64| {
            let fits = steps.iter().rev().find(|(size, _)| largest >= size * reach).unwrap_or(&steps[0]);
            Step { size: fits.0, symbol: fits.1.to_owned() }
        };
        let plain = |size: f64, symbol: &str| Step { size, symbol: symbol.to_owned() };
        match self {
            Unit::Seconds if largest == 0.0 => plain(1.0, "s"),
            // Up to ten minutes in seconds, up to ten hours in minutes.
            Unit::Seconds if largest >= 1.0 => of(&SECONDS[2..], 10.0),
            Unit::Seconds => of(&SECONDS, 1.0),
            Unit::Bytes => of(&BYTES, 1.0),
            Unit::BytesPerSecond => of(&RATES, 1.0),
            Unit::Share => plain(0.01, "%"),
            Unit::Times => plain(1.0, "×"),
            Unit::Count => plain(1.0, ""),
            Unit::Other(symbol) => plain(1.0, symbol),
        }
    }
}

/// Three digits that matter, no more; whole numbers stay whole.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e7).contains(&size) {
        return format!("{value:.1e}");
    }
    if value.fract() == 0.0 {
        return grouped(&format!("{value:.0}"));
    }
    let text = fixed(value, decimals(value));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A share in per cent: near 100 % the second decimal matters, since 99.9 and 99.95 are far apart there.
fn share(value: f64) -> String {
    let percent = value * 100.0;
    fixed(percent, if percent > 99.0 && percent < 100.0 { 2 } else { 1 })
}

fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    }
}

fn fixed(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    // A small negative number must not become "-0.0".
    let text = if text.trim_matches(['-', '0', '.']).is_empty() { text.replace('-', "") } else { text };
    grouped(&text)
}

/// Thousands apart by a thin space, from five digits on.
fn grouped(text: &str) -> String {
    let whole = text.split('.').next().unwrap_or(text);
    let n_digits = whole.trim_start_matches('-').len();
    if n_digits < 5 {
        return text.to_owned();
    }
    let mut grouped = String::new();
    let sign = whole.len() - n_digits;
    for (index, character) in text.chars().enumerate() {
        if index > sign && index < whole.len() && (whole.len() - index).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(character);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::Unit;

    #[test]
    fn numbers_get_the_unit_that_fits() {
        let cases = [
            (Unit::Seconds, 0.0, "0 s"),
            (Unit::Seconds, 0.00025, "250 µs"),
            (Unit::Seconds, 0.25, "250 ms"),
            (Unit::Seconds, 290.0, "290 s"),
            (Unit::Seconds, 600.0, "10 min"),
            (Unit::Seconds, 36_000.0, "10 h"),
            (Unit::Bytes, 12.0, "12 B"),
            (Unit::Bytes, 1.5e9, "1.5 GB"),
            (Unit::BytesPerSecond, 125_000.0, "125 kB/s"),
            (Unit::Share, 0.9987, "99.87 %"),
            (Unit::Share, 1.0, "100.0 %"),
            (Unit::Times, 3.456, "3.46 ×"),
            (Unit::Count, 1_199_882.0, "1\u{202f}199\u{202f}882"),
            (Unit::Count, -0.00001, "-1.0e-5"),
            (Unit::Other("samples/s".to_owned()), 12_345.6, "12\u{202f}346 samples/s"),
            (Unit::Seconds, f64::INFINITY, "–"),
        ];
        for (unit, value, text) in cases {
            assert_eq!(unit.format(value), text);
        }
    }

    #[test]
    fn a_mean_and_its_deviation_share_a_unit() {
        assert_eq!(Unit::Seconds.format_with_deviation(12.34, 0.42), "12.3 ± 0.4 s");
        assert_eq!(Unit::Share.format_with_deviation(0.986, 0.0004), "98.60 ± 0.04 %");
        assert_eq!(Unit::Bytes.format_with_deviation(4.8e6, 0.0), "4.8 MB");
        assert_eq!(Unit::Bytes.format_with_deviation(4.8e6, f64::NAN), "4.8 MB");
    }
}
