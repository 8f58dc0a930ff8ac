//! Progress bars, all drawn alike.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over so many things; one that is not seen if it is to be quiet.
pub(crate) fn bar(n: u64, template: &str, quiet: bool) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(n) };
    let style = ProgressStyle::with_template(template).expect("the template is right");
    bar.with_style(style.progress_chars("━╸─"))
}
