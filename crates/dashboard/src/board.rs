//! The board: all that the page shows of a run, as pieces of HTML.

use maud::{Markup, html};
use nettorrent_figures::Unit;
use nettorrent_history::{History, JoinSummary, LossSummary, Measure, PeerHistory, Reason, Start, Times, cause_text};
use nettorrent_swarm::PeerId;
use serde_json::{Value, json};

use crate::pictures::{SHORT_S, pictures, recent};
use crate::totals::Totals;

/// Only so much of what happened is shown, the newest first.
const MOST_LINES: usize = 100;
/// More peers than this have no line of their own.
const MOST_PEERS: usize = 64;

/// What the page shows of a run.
pub(crate) fn board(name: &str, history: &History, totals: &Totals) -> Value {
    let (state, class) = state(history);
    let figures: Vec<Value> =
        pictures(history).into_iter().map(|picture| json!({ "id": picture.id, "svg": picture.svg })).collect();
    json!({
        "title": format!("{name} – NetTorrent"),
        "name": html! { (name) }.into_string(),
        "state": html! { (state) }.into_string(),
        "class": class,
        "is_over": history.stop.is_some(),
        "numbers": numbers(history, totals).into_string(),
        "figures": figures,
        "peers": peers(history).into_string(),
        "churn": churn(history).into_string(),
        "happened": happened(history).into_string(),
    })
}

fn state(history: &History) -> (String, &'static str) {
    let Some(start) = &history.start else { return ("Waiting for the run to begin …".to_owned(), "") };
    match &history.stop {
        Some((_, stop)) => match &stop.reason {
            Reason::Finished if stop.is_guessing => {
                ("Finished, but the model has not learnt: its accuracy is that of guessing.".to_owned(), "failed")
            }
            Reason::Finished => (format!("Finished after {}.", Unit::Seconds.format(history.last_s)), "finished"),
            Reason::Interrupted => (format!("Stopped at step {}; the run can be resumed.", stop.step), ""),
            Reason::Failed(problem) => (format!("Failed: {problem}"), "failed"),
        },
        None => (format!("{}, {} so far", what(start), Unit::Seconds.format(history.last_s)), ""),
    }
}

/// What is trained, by whom.
fn what(start: &Start) -> String {
    let peers = match (&start.strategy, start.n_peers) {
        (Some(strategy), Some(n_peers)) => format!("{n_peers} peers, {strategy}"),
        (Some(strategy), None) => format!("other peers, {strategy}"),
        (None, _) => "one process".to_owned(),
    };
    let link = start.link.as_ref().map_or_else(String::new, |link| format!(" over {link}"));
    format!("Training {} with {peers}{link}", start.model)
}

fn numbers(history: &History, totals: &Totals) -> Markup {
    let progress = history.progress.last().map(|(_, progress)| progress);
    let epoch = history.epochs.last().map(|(_, epoch)| epoch);
    let tests = history.tests();
    let measure = history.measure();
    let values = || tests.iter().map(|(_, test)| measure.value(test.test_loss, test.test_accuracy));
    let name = measure.name().unwrap_or("loss");
    let (unit, best) = match measure {
        Measure::Accuracy => (Unit::Share, values().fold(f64::NAN, f64::max)),
        Measure::Loss | Measure::Perplexity { .. } => (Unit::Count, values().fold(f64::NAN, f64::min)),
    };
    let (counted, n_each) = measure.unit();
    let speed = progress.map_or(f64::NAN, |progress| (progress.samples_per_s * n_each as f64).round());
    let epochs = history.start.as_ref().map_or(0, |start| start.epochs);
    let own = tests.last().into_iter().flat_map(|(_, test)| &test.metrics);
    let own = own.map(|(name, value)| (format!("test {name}"), Unit::Count.format(*value)));
    let cells = [
        ("epochs", format!("{} of {epochs}", epoch.map_or(0, |epoch| epoch.epoch))),
        (&format!("test {name}"), unit.format(values().next_back().unwrap_or(f64::NAN))),
        (&format!("best {name}"), unit.format(best)),
        ("training loss", Unit::Count.format(progress.map_or(f64::NAN, |progress| progress.loss))),
        (&format!("{counted}/s"), Unit::Count.format(speed)),
        ("sent, all peers", Unit::Bytes.format(totals.sent_bytes() as f64)),
    ];
    html! {
        @for (name, value) in cells { div { b { (value) } span { (name) } } }
        @for (name, value) in own { div { b { (value) } span { (name) } } }
    }
}

/// A line for each peer: what it did in the last seconds.
fn peers(history: &History) -> Markup {
    let head = ["peer", "computing", "waiting", "sending", "CPU", "memory", "waiting for"];
    let n_more = history.peers.len().saturating_sub(MOST_PEERS);
    html! {
        @if history.peers.is_empty() {
            p { "Training in a single process." }
        } @else {
            table {
                thead { tr { @for name in head { th { (name) } } } }
                tbody { @for (id, peer) in history.peers.iter().take(MOST_PEERS) { (row(history, *id, peer)) } }
            }
            @if n_more > 0 { p { (n_more) " more" } }
        }
    }
}

fn row(history: &History, id: PeerId, peer: &PeerHistory) -> Markup {
    let times = Some(recent(history, id, peer)).filter(|times| times.elapsed_s > 0.0);
    let share = |seconds: fn(&Times) -> f64| {
        let share = times.as_ref().map_or(f64::NAN, |times| (seconds(times) / times.elapsed_s.max(1e-9)).min(1.0));
        Unit::Share.format((share * 100.0).round() / 100.0)
    };
    let rate = times.as_ref().map_or(f64::NAN, |times| times.sent_bytes as f64 / times.elapsed_s.max(1e-9));
    let used = peer.resources.iter().rfind(|(_, used)| used.elapsed_s >= SHORT_S).map(|(_, used)| used);
    let waits = times.as_ref().map_or(&[][..], |times| &times.waits);
    let waits: Vec<String> = waits.iter().map(|wait| wait.peer.to_string()).collect();
    let cells = [
        id.to_string(),
        share(|times| times.compute_s),
        share(|times| times.wait_s),
        Unit::BytesPerSecond.format(rate),
        used.map_or("–".to_owned(), |used| format!("{:.0} %", used.cpu_percent)),
        Unit::Bytes.format(used.map_or(f64::NAN, |used| used.rss_bytes as f64)),
        waits.join(", "),
    ];
    html! {
        tr { @for cell in cells { td { (cell) } } }
    }
}

/// Who came and who was lost, and how long that took; nothing where nobody did.
fn churn(history: &History) -> Markup {
    let (joins, losses) = (history.join_summaries(), history.loss_summaries());
    let seconds = |seconds: Option<f64>| Unit::Seconds.format(seconds.unwrap_or(f64::NAN));
    let at = |at_s: f64| format!("{at_s:.1} s");
    let join = |join: &JoinSummary| {
        let donors: Vec<String> = join.donors.iter().map(ToString::to_string).collect();
        let (state_s, n_bytes) = (Unit::Seconds.format(join.state_s), Unit::Bytes.format(join.n_bytes as f64));
        vec![at(join.at_s), join.peer.to_string(), n_bytes, state_s, donors.join(", "), seconds(join.round_s)]
    };
    let loss = |loss: &LossSummary| {
        let (lost, cause) = (loss.lost.to_string(), cause_text(loss.cause).to_owned());
        vec![at(loss.at_s), lost, cause, seconds(Some(loss.detection_s)), seconds(loss.recovery_s)]
    };
    let newest_first = |mut rows: Vec<Vec<String>>| {
        rows.reverse();
        rows.truncate(MOST_PEERS);
        rows
    };
    html! {
        @if !joins.is_empty() {
            h2 { "Joins" }
            (table(&["time", "peer", "state", "transfer", "from", "until first round"], &newest_first(joins.iter().map(join).collect())))
        }
        @if !losses.is_empty() {
            h2 { "Losses" }
            (table(&["time", "peer", "cause", "detection", "recovery"], &newest_first(losses.iter().map(loss).collect())))
        }
    }
}

fn table(head: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div.wide {
            table {
                thead { tr { @for name in head { th { (name) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

/// What happened, the newest first.
fn happened(history: &History) -> Markup {
    let mut lines: Vec<(f64, String)> = Vec::new();
    let measure = history.measure();
    for (at_s, test) in &history.tests() {
        let (epoch, tested) = (Unit::Count.format(test.epoch), measure.text(test.test_loss, test.test_accuracy));
        let own: String = test.metrics.iter().map(|(name, value)| format!(", {name} {value:.4}")).collect();
        lines.push((*at_s, format!("epoch {epoch}: test {tested}{own}")));
    }
    for (at_s, view) in &history.views {
        // All members tell of it; once is enough.
        if view.members.first() == Some(&view.peer) {
            let members: Vec<String> = view.members.iter().take(12).map(ToString::to_string).collect();
            let more = if view.members.len() > members.len() { ", …" } else { "" };
            lines.push((*at_s, format!("{} members: {}{more}", view.members.len(), members.join(", "))));
        }
    }
    lines.extend(history.rollbacks.iter().map(|(at_s, rollback)| (*at_s, rollback.to_string())));
    lines.extend(history.dropped.iter().map(|(at_s, dropped)| (*at_s, dropped.to_string())));
    lines.extend(history.left_out.iter().map(|(at_s, left_out)| (*at_s, left_out.to_string())));
    lines.extend(history.states_received.iter().map(|(at_s, received)| (*at_s, received.to_string())));
    lines.extend(history.joined.iter().map(|(at_s, joined)| (*at_s, joined.to_string())));
    lines.extend(history.differences.iter().map(|(at_s, differs)| (*at_s, differs.to_string())));
    lines.extend(history.notes.iter().map(|(at_s, note)| (*at_s, format!("{}: {}", note.peer, note.text))));
    let kept = |path: &std::path::Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let checkpoints = history.checkpoints.iter();
    lines.extend(checkpoints.map(|(at_s, checkpoint)| (*at_s, format!("checkpoint {}", kept(&checkpoint.path)))));
    lines.extend(history.failed_checkpoints.iter().map(|(at_s, failed)| (*at_s, failed.to_string())));
    lines.extend(history.log_failures.iter().map(|(at_s, failed)| (*at_s, failed.to_string())));
    if history.n_damaged > 0 {
        let text = format!("damaged lines in events.jsonl, which are left out here: {}", history.n_damaged);
        lines.push((history.last_s, text));
    }
    lines.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    html! {
        @for (at_s, text) in lines.iter().take(MOST_LINES) {
            li { time { (format!("{at_s:.1} s")) } " " (text) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::board;
    use crate::totals::Totals;
    use nettorrent_history::{
        CheckpointFailed, Evaluation, Event, History, Joined, Line, LogFailed, Loss, Note, Reason, StateReceived, Stop,
    };
    use nettorrent_swarm::PeerId;
    use nettorrent_swarm::record::LossCause;

    #[test]
    fn what_peers_say_is_text_and_nothing_else() {
        let mut history = History::default();
        let note = Note { peer: PeerId(1), text: "<script>alert(1)</script>".to_owned(), is_routine: false };
        history.add(Line { at_s: 1.0, event: Event::Note(note) });
        let reason = Reason::Failed("a < b".to_owned());
        let stop = Stop { reason, epoch: 0, step: 0, seconds: 1.0, peak_rss_bytes: None, is_guessing: false };
        history.add(Line { at_s: 1.5, event: Event::Stop(stop) });
        let shown = board("<b>", &history, &Totals::default()).to_string();
        assert!(!shown.contains("<script>") && !shown.contains("\"<b>\""), "{shown}");
        assert!(shown.contains("&lt;script&gt;"));
    }

    #[test]
    fn damaged_lines_and_what_could_not_be_written_are_told() {
        let mut history = History::default();
        history.n_damaged = 3;
        let failed = CheckpointFailed { epoch: 2, step: 20, problem: "the disk is full".to_owned() };
        history.add(Line { at_s: 1.0, event: Event::CheckpointFailed(failed) });
        let failed = LogFailed { n_lines: 7, problem: "the disk is full".to_owned() };
        history.add(Line { at_s: 1.0, event: Event::LogFailed(failed) });
        let shown = board("run", &history, &Totals::default()).to_string();
        for part in ["left out here: 3", "step 20 (epoch 2) is not on the disk", "7 events could not be written"] {
            assert!(shown.contains(part), "{shown}");
        }
    }

    #[test]
    fn joins_and_losses_are_told_with_how_long_they_took() {
        let mut history = History::default();
        assert_eq!(board("run", &history, &Totals::default())["churn"], "");
        let [one, two, three] = [1, 2, 3].map(|join_index| PeerId::new(join_index, 0));
        let received = StateReceived { peer: three, n_bytes: 5_000_000, seconds: 2.5, donors: vec![one, two] };
        let joined = Joined { peer: three, admission_s: 0.5, round_s: 3.5 };
        let loss = |peer, detection_s, recovery_s| {
            Event::Loss(Loss { peer, lost: two, cause: LossCause::Silent, view: 4, detection_s, recovery_s })
        };
        let events = [
            Event::StateReceived(received),
            Event::Joined(joined),
            loss(one, 14.5, Some(0.25)),
            loss(three, 15.5, Some(0.5)),
        ];
        events.into_iter().for_each(|event| history.add(Line { at_s: 20.0, event }));
        let shown = board("run", &history, &Totals::default())["churn"].to_string();
        for part in ["5 MB", "2.5 s", "peer 1, peer 2", "3.5 s", "silent", "15.5 s", "500 ms"] {
            assert!(shown.contains(&format!("<td>{part}</td>")), "{part}: {shown}");
        }
        assert_eq!(shown.matches("<td>silent</td>").count(), 1, "one loss, whoever tells of it: {shown}");
    }

    #[test]
    fn a_tasks_own_metrics_are_shown_by_name() {
        let mut history = History::default();
        let test = Evaluation {
            epoch: 0.5,
            step: 1,
            test_loss: 1.0,
            test_accuracy: 0.5,
            metrics: [("mean <error>".to_owned(), 0.25)].into(),
            test_seconds: 0.5,
            sent_bytes: 0,
        };
        history.add(Line { at_s: 1.0, event: Event::Evaluation(test) });
        let board = board("run", &history, &Totals::default());
        let numbers = board["numbers"].as_str().unwrap();
        assert!(numbers.contains("<b>0.25</b><span>test mean &lt;error&gt;</span>"), "{numbers}");
        let happened = board["happened"].as_str().unwrap();
        assert!(happened.contains("accuracy  50.00 %, mean &lt;error&gt; 0.2500"), "{happened}");
    }
}
