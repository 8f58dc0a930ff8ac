//! Axes: from numbers to places, with marks at round numbers.

use crate::number::{Unit, digits};

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps add the same.
    Linear,
    /// Equal steps multiply by the same; only numbers above 0 have a place.
    Log,
}

/// What an axis shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What is measured.
    pub label: String,
    /// What it is counted in.
    pub unit: Unit,
    /// How the axis is divided.
    pub scale: Scale,
}

impl Axis {
    /// An axis with equal steps.
    pub fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, scale: Scale::Linear }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, scale: Scale::Log }
    }

    /// Whether a number has a place on the axis.
    pub(crate) fn has(&self, value: f64) -> bool {
        value.is_finite() && value.abs() < 1e100 && (self.scale == Scale::Linear || value > 0.0)
    }

    /// The axis laid out for these numbers; for none, from 0 to 1.
    pub(crate) fn fit(&self, values: impl Iterator<Item = f64>, start: Start) -> Ruler {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| self.has(*value)) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = if self.scale == Scale::Log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        match self.scale {
            Scale::Linear => self.fit_linear(low, high, start),
            Scale::Log => self.fit_log(low, high),
        }
    }

    fn fit_linear(&self, mut low: f64, mut high: f64, start: Start) -> Ruler {
        if start == Start::Zero {
            low = low.min(0.0);
            high = high.max(0.0);
        }
        if high - low <= high.abs().max(low.abs()) * 1e-9 {
            // Equal numbers lie in the middle.
            let room = if high == 0.0 { 1.0 } else { high.abs() * 0.1 };
            (low, high) = (if start == Start::Zero && low == 0.0 { 0.0 } else { low - room }, high + room);
        }
        let step = self.unit.step(low.abs().max(high.abs()));
        let room = (high - low) * 0.04;
        let low = if low == 0.0 { 0.0 } else { low - room };
        // A share never reaches past the whole.
        let high = if self.unit == Unit::Share && high <= 1.0 { (high + room).min(1.0).max(high) } else { high + room };
        let marks = round_numbers(low / step.size, high / step.size);
        let marks = marks.map(|mark| (mark * step.size, tick(mark))).collect();
        let title =
            if step.symbol.is_empty() { self.label.clone() } else { format!("{} ({})", self.label, step.symbol) };
        Ruler { low, high, scale: Scale::Linear, marks, title }
    }

    fn fit_log(&self, low: f64, high: f64) -> Ruler {
        let (low, high) = if high / low < 1.5 { (low / 2.0, high * 2.0) } else { (low / 1.1, high * 1.1) };
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let every = ((last - first) / 6).max(1);
        let steps: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let marks = (first..=last)
            .filter(|power| (power - first) % every == 0)
            .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
            .filter(|mark| (low..=high).contains(mark))
            .map(|mark| (mark, self.unit.format(mark)))
            .collect();
        // Each mark carries its own unit, since they go from the smallest to the largest.
        let title = format!("{} (logarithmic)", self.label);
        Ruler { low, high, scale: Scale::Log, marks, title }
    }
}

/// Whether an axis has to show 0: bars must, or their lengths would lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Anywhere,
    Zero,
}

/// An axis that is laid out.
#[derive(Clone, Debug)]
pub(crate) struct Ruler {
    low: f64,
    high: f64,
    scale: Scale,
    /// Round numbers and what is written there.
    pub(crate) marks: Vec<(f64, String)>,
    /// What is measured, and in what.
    pub(crate) title: String,
}

impl Ruler {
    /// Where a number lies, from 0 to 1; what lies outside is moved to the end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }
}

/// Up to eight round numbers in a range: multiples of 1, 2 or 5 and a power of ten.
fn round_numbers(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let smallest = (high - low) / 7.0;
    let power = 10f64.powf(smallest.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= smallest);
    let step = step.unwrap_or(smallest);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(move |index| index as f64 * step)
}

/// A mark as it is written; sums of binary fractions must not show as 0.30000000000000004.
fn tick(mark: f64) -> String {
    if mark == 0.0 || (1e-3..1e7).contains(&mark.abs()) {
        let text = format!("{mark:.4}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        if text == "-0" { "0".to_owned() } else { text.to_owned() }
    } else {
        digits(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Start};
    use crate::number::Unit;

    #[test]
    fn an_axis_speaks_in_the_unit_of_its_largest_number() {
        let ruler = Axis::linear("sent", Unit::Bytes).fit([0.0, 4.8e6].into_iter(), Start::Zero);
        assert_eq!(ruler.title, "sent (MB)");
        assert!(ruler.marks.iter().any(|(value, text)| *value == 2e6 && text == "2"), "{:?}", ruler.marks);
        assert_eq!(ruler.place(0.0), 0.0);
        assert!(ruler.place(4.8e6) > 0.9);
    }

    #[test]
    fn every_axis_has_marks_whatever_it_shows() {
        let cases: [&[f64]; 8] = [
            &[],
            &[f64::NAN, f64::INFINITY],
            &[0.0],
            &[5.0, 5.0],
            &[-3.0, -3.0],
            &[1e-300, 1e-299],
            &[1e300],
            &[0.97, 0.970_000_000_1],
        ];
        for values in cases {
            for axis in [Axis::linear("x", Unit::Seconds), Axis::log("x", Unit::Bytes)] {
                for start in [Start::Anywhere, Start::Zero] {
                    let ruler = axis.fit(values.iter().copied(), start);
                    assert!(!ruler.marks.is_empty() && ruler.marks.len() < 30, "{values:?}: {:?}", ruler.marks);
                    assert!(values.iter().all(|value| (0.0..=1.0).contains(&ruler.place(*value))));
                }
            }
        }
    }

    #[test]
    fn equal_steps_of_a_logarithmic_axis_multiply() {
        let ruler = Axis::log("x", Unit::Bytes).fit([1e3, 1e6].into_iter(), Start::Anywhere);
        let steps = [1e3, 1e4, 1e5].map(|value| ruler.place(value * 10.0) - ruler.place(value));
        assert!((steps[0] - steps[1]).abs() < 1e-9 && (steps[1] - steps[2]).abs() < 1e-9);
        assert!(ruler.marks.iter().any(|(_, text)| text == "10 kB"), "{:?}", ruler.marks);
    }
}
