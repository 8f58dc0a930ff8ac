//! Tables in plain text.

/// Where a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// Lines of cells in columns as wide as their widest cell; columns that nothing is said of stand as the last one of which
/// something is.
pub fn aligned(lines: &[Vec<String>], sides: &[Side]) -> String {
    let width = |k: usize| lines.iter().map(|line| line[k].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines.first().map_or(0, Vec::len)).map(width).collect();
    let side = |k: usize| sides.get(k).or(sides.last()).copied().unwrap_or(Side::Left);
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(k, (cell, width))| match side(k) {
            Side::Left => format!("{cell:<width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Side, aligned};

    #[test]
    fn columns_are_aligned_by_what_people_see() {
        let lines = [["a", "bc", "d"], ["1 ± 2", "3", ""]].map(|line| line.map(str::to_owned).to_vec());
        assert_eq!(aligned(&lines, &[]), "a      bc  d\n1 ± 2  3\n");
        assert_eq!(aligned(&lines, &[Side::Left, Side::Right]), "a      bc  d\n1 ± 2   3\n");
        assert_eq!(aligned(&[], &[Side::Left]), "");
    }
}
