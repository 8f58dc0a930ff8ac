//! What the numbers say, in sentences: who won, by how much, at what cost, and whether that could be chance.

use nettorrent_engine::measure::Measure;
use nettorrent_figures::Unit;

use crate::compare::{Group, Spread};
use crate::report::document::{Block, Section};
use crate::report::group::{Difference, Groups};
use crate::report::judged;
use crate::report::machines;
use crate::report::overview::target;
use crate::report::predicted;
use crate::results::{Host, Outcome, Results};

/// Up to so many comparisons are told at length.
const MOST_AT_LENGTH: usize = 3;
/// More comparisons than this are left to the tables.
const MOST_COMPARISONS: usize = 24;

/// The section.
pub(crate) fn section(results: &Results, groups: &Groups<'_>) -> Section {
    let mut sentences = vec![runs(results, groups)];
    sentences.extend(alone(results, groups));
    let comparisons = comparisons(groups);
    let is_long = comparisons.len() <= MOST_AT_LENGTH;
    for comparison in comparisons.iter().take(MOST_COMPARISONS) {
        let told = tell(results, comparison, is_long);
        if comparison.context.is_empty() {
            sentences.extend(told.iter().map(|sentence| capital(sentence)));
        } else {
            let first = told.first().cloned().unwrap_or_default();
            let rest = told.iter().skip(1).map(|sentence| capital(sentence));
            let all: Vec<String> = [first].into_iter().chain(rest).collect();
            sentences.push(format!("{}: {}", comparison.context, all.join(" ")));
        }
    }
    if comparisons.len() > MOST_COMPARISONS {
        let n_more = comparisons.len() - MOST_COMPARISONS;
        sentences.push(format!("{n_more} more comparisons are in the table of all configurations."));
    }
    sentences.extend(waiting(groups));
    sentences.extend(predicted::sentence(groups));
    Section { id: "summary", title: "Summary", blocks: vec![Block::List(sentences)] }
}

fn runs(results: &Results, groups: &Groups<'_>) -> String {
    let n_failed = results.runs.iter().filter(|run| matches!(run.outcome, Outcome::Failed(_))).count();
    let failed = match n_failed {
        0 => "0 failures".to_owned(),
        1 => "1 failure, left out below".to_owned(),
        n => format!("{n} failures, left out below"),
    };
    let host = match results.study.host {
        Host::Processes if results.has_no_peers() => "Each run was one process.",
        Host::Processes if machines::are_remote(results) => "Each peer ran on a machine of its own.",
        Host::Processes => "Peers were processes on one machine that communicated over sockets.",
        Host::Sim => "Peers and all times were simulated.",
    };
    let size = if results.study.is_quick { " This is the quick form of the study." } else { "" };
    format!(
        "{}, {}, {failed}. {host}{size}{}",
        counted(results.runs.len(), "run"),
        counted(groups.all.len(), "configuration"),
        chance(groups)
    )
}

/// What one trial cannot tell.
fn chance(groups: &Groups<'_>) -> &'static str {
    let n_once = groups.all.iter().filter(|group| group.measurements.len() == 1).count();
    match n_once {
        _ if groups.all.len() < 2 || n_once == 0 => "",
        n if n == groups.all.len() => " One trial per configuration: no significance estimate.",
        _ => " Some configurations have one trial only: no significance estimate for those.",
    }
}

/// How one who trained alone did: what all others are to be compared with. Where there are several of these, the tables tell.
fn alone(results: &Results, groups: &Groups<'_>) -> Option<String> {
    let mut baselines = groups.all.iter().filter(|group| group.facts.strategy.is_none());
    let (Some(baseline), None) = (baselines.next(), baselines.next()) else { return None };
    let value = baseline.spread(|measured| measured.final_value)?.text(&judged::unit(groups.measure));
    let reached = match baseline.spread_if_all(|measured| measured.convergence_s) {
        Some(time) => format!("reached {} after {} and ", target(results), time.text(&Unit::Seconds)),
        None => String::new(),
    };
    let ended = match groups.measure {
        Measure::Accuracy => format!("an accuracy of {value}"),
        Measure::Loss | Measure::Perplexity { .. } => format!("a {} of {value}", groups.measure.noun()),
    };
    Some(format!("The single-process baseline {reached}ended with {ended}."))
}

fn counted(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

/// Settings that differ in one thing only.
struct Comparison<'a, 'b> {
    /// What they have in common.
    context: String,
    /// What each is called, by what they differ in.
    candidates: Vec<(String, &'b Group<'a>)>,
}

fn comparisons<'a, 'b>(groups: &'b Groups<'a>) -> Vec<Comparison<'a, 'b>> {
    let Some(compared) = groups.compared() else { return Vec::new() };
    let rest: Vec<&str> = groups.varied.iter().copied().filter(|axis| *axis != compared).collect();
    let mut found: Vec<(Vec<Option<&str>>, Comparison<'a, 'b>)> = Vec::new();
    for group in &groups.all {
        // One who trains alone is what strategies are measured by, not one of them.
        let is_baseline = compared == "strategy" && group.facts.strategy.is_none();
        if group.value(compared).is_none() || is_baseline || group.measurements.is_empty() {
            continue;
        }
        let key: Vec<Option<&str>> = rest.iter().map(|axis| group.value(axis)).collect();
        let candidate = (group.name_by(&[compared]), group);
        match found.iter_mut().find(|(known, _)| *known == key) {
            Some((_, comparison)) => comparison.candidates.push(candidate),
            None => {
                let context = if rest.is_empty() { String::new() } else { group.name_by(&rest) };
                found.push((key, Comparison { context, candidates: vec![candidate] }));
            }
        }
    }
    found.into_iter().map(|(_, comparison)| comparison).filter(|comparison| comparison.candidates.len() > 1).collect()
}

fn tell(results: &Results, comparison: &Comparison<'_, '_>, is_long: bool) -> Vec<String> {
    let times = ranked(
        comparison,
        |group| group.spread_if_all(|measured| measured.convergence_s),
        |a, b| a.mean.total_cmp(&b.mean),
    );
    let measure = results.measure();
    let final_value = |group: &Group<'_>| group.spread(|measured| measured.final_value);
    let values = ranked(comparison, final_value, |a, b| match measure {
        Measure::Accuracy => b.mean.total_cmp(&a.mean),
        Measure::Loss | Measure::Perplexity { .. } => a.mean.total_cmp(&b.mean),
    });
    let mut told = Vec::new();
    let winner = match times.first() {
        Some((winner, _)) if results.target().is_some() => {
            told.push(told_times(&target(results), &times, comparison.candidates.len()));
            Some(*winner)
        }
        _ => {
            if results.target().is_some() {
                told.push(format!("no configuration reached {} in all trials.", target(results)));
            }
            values.first().map(|(name, _)| *name)
        }
    };
    if is_long || times.is_empty() {
        told.extend(told_values(&values, measure));
    }
    if is_long {
        told.extend(winner.and_then(|winner| told_bytes(comparison, winner)));
    }
    told
}

type Ranked<'b> = Vec<(&'b str, Spread)>;

fn ranked<'a, 'b>(
    comparison: &'b Comparison<'a, '_>,
    number: impl Fn(&Group<'a>) -> Option<Spread>,
    order: impl Fn(&Spread, &Spread) -> std::cmp::Ordering,
) -> Ranked<'b> {
    let numbers = comparison.candidates.iter().filter_map(|(name, group)| Some((name.as_str(), number(group)?)));
    let mut ranked: Ranked<'b> = numbers.collect();
    ranked.sort_by(|a, b| order(&a.1, &b.1));
    ranked
}

fn told_times(target: &str, times: &Ranked<'_>, n_candidates: usize) -> String {
    let seconds = Unit::Seconds;
    let (winner, best) = &times[0];
    let missing = match n_candidates - times.len() {
        0 => String::new(),
        1 => " One other did not reach it in every trial.".to_owned(),
        n => format!(" {n} others did not reach it in every trial."),
    };
    let Some((second, next)) = times.get(1) else {
        let each = if best.n > 1 { " in every trial" } else { "" };
        return format!("only {winner} reached {target}{each}, after {}.", best.text(&seconds));
    };
    let percent = (next.mean / best.mean - 1.0) * 100.0;
    if best.mean == next.mean {
        return format!("{winner} and {second} reached {target} first, both after {}.{missing}", best.text(&seconds));
    }
    match best.compare(next) {
        difference @ (Difference::Significant(_) | Difference::Unknown) => format!(
            "{winner} was the first to reach {target}: after {}. {} took {}, {percent:.0} % longer{}.{missing}",
            best.text(&seconds),
            capital(second),
            next.text(&seconds),
            difference.p_text()
        ),
        Difference::Insignificant => format!(
            "{} reached {target} first, and the difference between them is not significant.{missing}",
            tied(times, &seconds)
        ),
    }
}

/// The first, and all that differ from it by no more than chance.
fn tied(ranked: &Ranked<'_>, unit: &Unit) -> String {
    let is_tied = |other: &&(&str, Spread)| ranked[0].1.compare(&other.1) == Difference::Insignificant;
    let mut names = vec![format!("{} ({})", ranked[0].0, ranked[0].1.text(unit))];
    names.extend(
        ranked.iter().skip(1).take_while(is_tied).map(|(name, spread)| format!("{name} ({})", spread.text(unit))),
    );
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) }
}

fn told_values(ranked: &Ranked<'_>, measure: Measure) -> Option<String> {
    let (unit, noun, (first, last)) = (judged::unit(measure), measure.noun(), judged::extremes(measure));
    let [(winner, best), (second, next), ..] = ranked.as_slice() else { return None };
    if ranked.iter().all(|(_, other)| other.mean == best.mean) {
        return Some(format!("all ended with the same {noun}, {}.", best.text(&unit)));
    }
    let behind = judged::behind(measure, best.mean, next.mean);
    let hindmost = match ranked.as_slice() {
        [_, _, .., (name, worst)] if worst.mean != next.mean && best.compare(worst) != Difference::Insignificant => {
            format!(" {name} ended {last}, with {}.", worst.text(&unit))
        }
        _ => String::new(),
    };
    Some(match best.compare(next) {
        difference @ (Difference::Significant(_) | Difference::Unknown) => format!(
            "{winner} ended with the {first} {noun}, {}; {second} came next, {behind}{}.{hindmost}",
            best.text(&unit),
            difference.p_text()
        ),
        Difference::Insignificant => format!(
            "{} ended with the {first} {}, and their differences are not significant.{hindmost}",
            tied(ranked, &unit),
            judged::plural(measure)
        ),
    })
}

fn told_bytes(comparison: &Comparison<'_, '_>, winner: &str) -> Option<String> {
    let sent = ranked(comparison, Group::sent, |a, b| a.mean.total_cmp(&b.mean));
    let own = sent.iter().find(|(name, _)| *name == winner)?;
    let (least, fewest) = sent.first()?;
    let bytes = Unit::Bytes;
    if sent.len() < 2 {
        return None;
    }
    let own_text = own.1.text(&bytes);
    // Less than a thousandth is what peers tell each other besides.
    if sent.last()?.1.mean <= 1.001 * fewest.mean {
        return Some(format!("all sent the same: {own_text} per peer."));
    }
    if *least == winner || fewest.mean >= own.1.mean {
        return Some(format!("{winner} also sent the least: {own_text} per peer."));
    }
    let factor = own.1.mean / fewest.mean;
    let least_text = fewest.text(&bytes);
    if fewest.mean == 0.0 {
        return Some(format!("{winner} sent {own_text} per peer; {least} sent nothing."));
    }
    Some(format!(
        "{winner} sent {own_text} per peer, {factor:.1} times as much as {least}, which sent the least: {least_text}."
    ))
}

/// Where peers waited the most.
fn waiting(groups: &Groups<'_>) -> Option<String> {
    let share = |group: &Group<'_>| {
        group.spread_of_some(|measured| {
            let elapsed: f64 = measured.peers.iter().map(|peer| peer.elapsed_s).sum();
            let waited: f64 = measured.peers.iter().map(|peer| peer.wait_s).sum();
            (elapsed > 0.0 && measured.peers.len() > 1).then(|| waited / elapsed)
        })
    };
    let shares = groups.all.iter().filter_map(|group| Some((groups.name(group), share(group)?)));
    let mut shares: Vec<(String, Spread)> = shares.collect();
    shares.sort_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
    let (most, least) = (shares.last()?, shares.first()?);
    let (most_text, least_text) = (Unit::Share.format(most.1.mean), Unit::Share.format(least.1.mean));
    if most_text == least_text {
        return Some(format!("Peers spent {most_text} of their time waiting for others."));
    }
    Some(format!(
        "Peers waited longest in {} ({most_text} of their time) and shortest in {} ({least_text}).",
        most.0, least.0
    ))
}

/// A sentence begins with a capital, unless it begins with a name that has none: names stay as they are written elsewhere.
fn capital(sentence: &str) -> String {
    let word = sentence.split([' ', ',']).next().unwrap_or_default();
    if !["all", "no", "only"].contains(&word) {
        return sentence.to_owned();
    }
    let mut characters = sentence.chars();
    characters.next().map_or(String::new(), |first| first.to_uppercase().chain(characters).collect())
}
