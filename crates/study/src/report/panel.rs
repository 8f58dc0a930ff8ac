//! Many settings as small figures side by side: each with few enough curves to be told apart.

use crate::compare::Group;
use crate::report::group::Groups;

/// The settings of one figure.
#[derive(Clone, Debug)]
pub(crate) struct Panel<'a, 'b> {
    /// What its settings have in common that those of other figures have not; empty if there is one figure only.
    pub(crate) title: String,
    /// The settings with their names, less what is in the title.
    pub(crate) groups: Vec<(String, &'b Group<'a>)>,
}

/// More curves in one figure cannot be told apart.
const MOST_SERIES: usize = 8;
/// More figures in a row nobody looks at.
pub(crate) const MOST_PANELS: usize = 12;

/// The settings, parted by as few axes as it takes. What is compared stays together.
pub(crate) fn panels<'a, 'b>(groups: &'b Groups<'a>) -> Vec<Panel<'a, 'b>> {
    let compared = groups.compared();
    let mut left: Vec<&str> = groups.varied.iter().copied().filter(|axis| Some(*axis) != compared).collect();
    let mut parting: Vec<&str> = Vec::new();
    loop {
        let panels = part(groups, &parting);
        if panels.iter().all(|panel| panel.groups.len() <= MOST_SERIES) {
            return panels;
        }
        // The last axis of the study's file is what varies fastest, so the first is what one would part by.
        if left.is_empty() {
            return panels.into_iter().flat_map(in_pieces).collect();
        }
        parting.push(left.remove(0));
    }
}

fn part<'a, 'b>(groups: &'b Groups<'a>, parting: &[&str]) -> Vec<Panel<'a, 'b>> {
    let key = |group: &Group<'a>| parting.iter().map(|axis| group.value(axis)).collect::<Vec<Option<&str>>>();
    let mut keys: Vec<Vec<Option<&str>>> = Vec::new();
    for group in &groups.all {
        let key = key(group);
        if key.iter().all(Option::is_some) && !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        keys.push(vec![None; parting.len()]);
    }
    let rest: Vec<&str> = groups.varied.iter().copied().filter(|axis| !parting.contains(axis)).collect();
    let panel = |wanted: Vec<Option<&str>>| {
        // One who trains alone has no link and no strategy; it belongs to all.
        let is_in = |group: &&Group<'a>| key(group).iter().zip(&wanted).all(|(own, want)| own.is_none() || own == want);
        let members: Vec<&Group<'a>> = groups.all.iter().filter(is_in).collect();
        let whole = members.iter().find(|group| key(group) == wanted);
        let title = whole.filter(|_| !parting.is_empty()).map_or(String::new(), |group| group.name_by(parting));
        Panel { title, groups: members.into_iter().map(|group| (group.name_by(&rest), group)).collect() }
    };
    keys.into_iter().map(panel).collect()
}

fn in_pieces<'a, 'b>(panel: Panel<'a, 'b>) -> Vec<Panel<'a, 'b>> {
    let n_pieces = panel.groups.len().div_ceil(MOST_SERIES);
    if n_pieces <= 1 {
        return vec![panel];
    }
    // Pieces of about the same size.
    let size = panel.groups.len().div_ceil(n_pieces);
    let piece = |(index, groups): (usize, &[(String, &'b Group<'a>)])| {
        let part = format!("part {} of {n_pieces}", index + 1);
        let title = if panel.title.is_empty() { part } else { format!("{}, {part}", panel.title) };
        Panel { title, groups: groups.to_vec() }
    };
    panel.groups.chunks(size).enumerate().map(piece).collect()
}
