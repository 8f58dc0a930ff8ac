//! The report says what the numbers say: all of them, and no more.

mod fixture;

use std::fs;

use fixture::{Course, fail, results};
use nettorrent_engine::measure::Measure;
use nettorrent_study::report::write;
use nettorrent_study::{JoinMeasurement, LossMeasurement, Outcome, Results, RunResult, Targets};
use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::LossCause;

/// What a report's files say.
struct Report {
    html: String,
    markdown: String,
    folder: tempfile::TempDir,
}

fn report(results: &Results) -> Report {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(results, folder.path()).expect("a report");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("a file of the report");
    Report { html: read("report.html"), markdown: read("report.md"), folder }
}

impl Report {
    #[track_caller]
    fn says(&self, text: &str) {
        assert!(self.html.contains(&text.replace('<', "&lt;")), "not in the page: {text}");
        assert!(self.markdown.contains(text), "not in the text: {text}\n{}", self.markdown);
    }

    #[track_caller]
    fn does_not_say(&self, text: &str) {
        assert!(!self.html.contains(text), "in the page: {text}");
        assert!(!self.markdown.contains(text), "in the text: {text}");
    }

    fn lines(&self, name: &str) -> Vec<csv::StringRecord> {
        let mut reader = csv::Reader::from_path(self.folder.path().join(name)).expect("a table");
        reader.records().collect::<Result<_, _>>().expect("whole lines")
    }
}

fn clear_winner() -> Results {
    results(&[
        Course::alone(&[3.0, 3.1, 2.9]),
        Course { sent_bytes: 3_600_000, ..Course::new("parameter-server", &[1.6, 1.7, 1.65]) },
        Course { best: 0.995, ..Course::new("ring-all-reduce", &[1.0, 1.02, 0.98]) },
    ])
}

#[test]
fn every_section_is_there_and_in_the_contents() {
    let mut results = clear_winner();
    fail(&mut results, 0, "the disk is full");
    let report = report(&results);
    let sections = [
        "summary",
        "settings",
        "accuracy",
        "speed",
        "predicted",
        "waits",
        "resources",
        "replicas",
        "confusion",
        "published",
        "failures",
        "method",
    ];
    for id in sections {
        assert!(report.html.contains(&format!("<section id=\"{id}\">")), "{id}");
        assert!(report.html.contains(&format!("<a href=\"#{id}\">")), "{id} is not in the contents");
    }
    for figure in [
        "Accuracy against time",
        "Accuracy against bytes",
        "Accuracy against epochs",
        "Training time to an accuracy of 95.0 %",
        "Speed-up over a single process",
        "Measured vs. predicted speed",
        "Predicted and measured speed",
        "Time breakdown by configuration",
        "Wait time between peers",
        "CPU per peer",
        "Peak memory per peer",
        "Network traffic per peer",
        "Disk traffic per peer",
        "CPU over time",
        "Distance of replicas from their mean",
        "Confusion matrix",
    ] {
        assert!(report.html.contains(figure), "there is no figure {figure}");
    }
}

#[test]
fn joins_and_losses_are_told_with_how_long_they_took() {
    let mut results = clear_winner();
    report(&results).does_not_say("Joins and losses");
    let Outcome::Done(measured) = &mut results.runs[4].outcome else { panic!("it went well") };
    let peer = PeerId::new(3, 0);
    measured.joins.push(JoinMeasurement {
        peer,
        n_bytes: 400_000_000,
        state_s: 32.5,
        n_donors: 2,
        round_s: Some(34.0),
    });
    let (cause, detection_s) = (LossCause::Stuck, 1.5);
    measured.losses.push(LossMeasurement { peer, cause, detection_s, recovery_s: None });
    let report = report(&results);
    assert!(report.html.contains("<section id=\"churn\">") && report.html.contains("<a href=\"#churn\">"));
    for cell in ["400 MB", "32.5 s", "34 s", "its computation stood still", "1.5 s"] {
        report.says(cell);
    }
}

#[test]
fn a_clear_winner_is_named_with_its_time_and_its_cost() {
    let report = report(&clear_winner());
    report.says("9 runs, 3 configurations, 0 failures.");
    report.says("ring-all-reduce was the first to reach 95.0 %: after 4.00 ± 0.08 s.");
    report.says("parameter-server took 6.60 ± 0.20 s, 65 % longer (p below 0.001).");
    report.says("ring-all-reduce ended with the highest accuracy, 99.3 ± 0.2 %");
    report.says("ring-all-reduce also sent the least: 12 MB per peer.");
    report.does_not_say("not significant");
    report.does_not_say("Failed runs");
}

/// The same runs as those of language models: the loss of the one that ended with the higher accuracy is lower.
fn texts() -> Results {
    let mut results = clear_winner();
    results.study.targets = Targets { perplexity: Some(3.5), ..Targets::default() };
    results.published.clear();
    for run in &mut results.runs {
        let Outcome::Done(measured) = &mut run.outcome else { panic!("it went well") };
        measured.measure = Measure::Perplexity { n_tokens: 8 };
        for epoch in &mut measured.epochs {
            epoch.test_loss = 2.0 * (1.0 - epoch.test_accuracy) + 1.0;
            epoch.test_accuracy = 0.0;
        }
        measured.best_value = measured.epochs[9].test_loss.exp();
        (measured.final_value, measured.confusion) = (measured.best_value, Vec::new());
        measured.judge(results.study.targets.perplexity, &[5.0, 20.0]);
    }
    results
}

#[test]
fn language_models_are_judged_by_perplexity() {
    let report = report(&texts());
    report.says("ring-all-reduce was the first to reach a perplexity of 3.5: after");
    report.says("ring-all-reduce ended with the lowest perplexity, 2.");
    report.says("% above");
    report.says("final perplexity");
    report.says("Perplexity on the test set");
    report.says("Best perplexity reached by fixed training times");
    assert!(report.html.contains("Training time to a perplexity of 3.5") && report.html.contains("test perplexity"));
    report.does_not_say("ccuracy");
    assert!(report.lines("runs.csv").iter().all(|line| line.iter().any(|cell| cell == "perplexity")));
}

#[test]
fn insignificant_differences_are_called_so() {
    let close = [Course::new("ring-all-reduce", &[1.0, 1.1, 0.9]), Course::new("step-wise", &[1.02, 1.12, 0.94])];
    let report = report(&results(&close));
    report.says("ring-all-reduce (4.00 ± 0.40 s) and step-wise (4.11 ± 0.36 s) reached 95.0 % first");
    report.says("the difference between them is not significant");
    report.does_not_say("was the first to reach");
}

#[test]
fn one_trial_says_nothing_about_chance() {
    let report = report(&results(&[Course::new("gossip", &[1.0]), Course::new("step-wise", &[2.0])]));
    report.says("gossip was the first to reach 95.0 %: after 4 s. step-wise took 8 s, 100 % longer.");
    report.says("One trial per configuration: no significance estimate.");
    report.says("There was one trial per configuration");
}

#[test]
fn failed_runs_are_told_with_their_message_and_count_nowhere() {
    let mut results = results(&[Course::new("gossip", &[1.0, 100.0]), Course::new("step-wise", &[2.0, 2.1])]);
    fail(&mut results, 1, "peer 2 <said> nothing | for 30 s");
    let report = report(&results);
    report.says("4 runs, 2 configurations, 1 failure, left out below.");
    assert!(report.html.contains("peer 2 &lt;said&gt; nothing | for 30 s"));
    assert!(report.markdown.contains("peer 2 \\<said\\> nothing \\| for 30 s"));
    report.says("1 of 2");
    report.says("gossip was the first to reach 95.0 %: after 4 s.");
    let lines = report.lines("runs.csv");
    assert!(lines.iter().any(|line| line.iter().any(|cell| cell == "peer 2 <said> nothing | for 30 s")));
}

#[test]
fn a_study_in_which_everything_failed_still_has_a_report() {
    let mut results = results(&[Course::new("gossip", &[1.0]), Course::new("step-wise", &[2.0])]);
    for index in 0..2 {
        fail(&mut results, index, "no luck");
    }
    let report = report(&results);
    report.says("2 failures, left out below");
    report.says("no luck");
    let nothing = self::report(&Results { runs: Vec::new(), axes: Vec::new(), ..results });
    nothing.says("0 runs, 0 configurations, 0 failures");
}

#[test]
fn a_target_that_nobody_reached_is_not_reached() {
    let low = |strategy| Course { best: 0.9, ..Course::new(strategy, &[1.0, 1.1]) };
    let report = report(&results(&[low("gossip"), low("step-wise")]));
    report.says("No configuration reached 95.0 % in all trials.");
    report.does_not_say("Training time to an accuracy");
}

#[test]
fn numbers_of_all_settings_are_in_the_table() {
    let report = report(&clear_winner());
    // Trials, best accuracy, time to the target, training time, samples a second, bytes.
    for cell in
        ["98.4 ± 0.2 %", "12.0 ± 0.4 s", "30.0 ± 1.0 s", "500.4 ± 16.7", "36 MB", "12 MB", "48 MB", "16.5 ± 0.5 s"]
    {
        report.says(cell);
    }
    // The slowest of four workers is three times as fast as one alone; the same is said in the tables of speed.
    report.says("3.00 ± 0.06 ×");
    report.says("0.909 ×");
}

#[test]
fn what_others_published_stands_beside_ours() {
    let report = report(&clear_winner());
    let row = "| training time | strategy ring-all-reduce | 320 s | 10.0 ± 0.2 s | Downpour study, table 2 |";
    assert!(report.markdown.contains(row), "{}", report.markdown);
    report.says("96.6 %");
}

#[test]
fn the_way_to_repeat_it_is_told() {
    let report = report(&clear_winner());
    for fact in [
        "nettorrent study averaging --quick",
        "program: 0.1.0-12-gabcdef0",
        "date: 2026-11-15 02:45:00 UTC",
        "Made-up CPU 3000, 8 threads, 16 GB of memory",
        "seeds: 7, 8, 9",
    ] {
        report.says(fact);
    }
}

#[test]
fn the_page_needs_nothing_else_and_escapes_what_it_is_told() {
    let report = report(&clear_winner());
    assert!(report.html.contains("what does it cost? &lt;b&gt;&amp;&lt;/b&gt;"));
    assert!(!report.html.contains("<b>") && !report.html.contains("<script"));
    for outside in ["src=", "@import", "url(", "<link"] {
        assert!(!report.html.contains(outside), "{outside}");
    }
    assert!(report.html.contains("prefers-color-scheme: dark") && report.html.contains("@media print"));
}

#[test]
fn tables_have_a_line_for_everything() {
    let results = clear_winner();
    let report = report(&results);
    assert_eq!(report.lines("runs.csv").len(), 9);
    assert_eq!(report.lines("epochs.csv").len(), 9 * 10);
    let n_seconds: usize = results
        .runs
        .iter()
        .filter_map(|run| run.measurement())
        .flat_map(|measured| &measured.peers)
        .map(|peer| peer.resources.as_ref().map_or(0, |used| used.series.len()))
        .sum();
    assert_eq!(report.lines("resources.csv").len(), n_seconds);
    let json = fs::read(report.folder.path().join("results.json")).expect("results");
    assert_eq!(json, serde_json::to_vec_pretty(&results).expect("JSON"));
}

#[test]
fn who_trains_alone_has_a_bar_where_its_times_are_known() {
    let bars = |elapsed_s: f64| {
        let mut results = clear_winner();
        let done = |run: &RunResult| run.measurement().map(|measured| measured.peers.clone()).unwrap_or_default();
        let mut alone = done(results.runs.last().expect("there are runs")).swap_remove(0);
        (alone.elapsed_s, alone.compute_s, alone.wait_s) = (elapsed_s, elapsed_s, 0.0);
        (alone.encode_s, alone.decode_s) = (0.0, 0.0);
        for run in results.runs.iter_mut().filter(|run| run.facts.strategy.is_none()) {
            let Outcome::Done(measured) = &mut run.outcome else { panic!("all runs are done") };
            measured.peers = vec![alone.clone()];
        }
        let report = report(&results);
        let figure = report.folder.path().join("figures/time-by-setting.svg");
        let svg = fs::read_to_string(figure).expect("a figure");
        (svg.contains(">alone<"), svg.matches("<rect").count())
    };
    let (is_named, n_parts) = bars(30.0);
    let (is_named_without, n_parts_without) = bars(0.0);
    assert!(is_named && !is_named_without);
    assert_eq!(n_parts, n_parts_without + 1, "it only computes");
}

#[test]
fn figures_of_the_text_are_beside_it() {
    let report = report(&clear_winner());
    let names = report.markdown.split("](figures/").skip(1).filter_map(|rest| rest.split(')').next());
    let mut n_figures = 0;
    for name in names {
        let svg = fs::read_to_string(report.folder.path().join("figures").join(name)).expect("a figure");
        assert!(svg.starts_with("<svg"), "{name}");
        n_figures += 1;
    }
    assert!(n_figures >= 15, "{n_figures} figures");
}

#[test]
fn many_settings_become_many_small_figures() {
    let mut courses = vec![Course::alone(&[3.0])];
    for strategy in ["best-peer", "downpour", "gossip", "ring-reduce", "step-wise", "threshold"] {
        for (n_peers, link) in [(2, "10Mbit/20ms"), (4, "10Mbit/20ms"), (2, "1Gbit/1ms"), (4, "1Gbit/1ms")] {
            let others = vec![("link", link.to_owned())];
            courses.push(Course { n_peers, others, ..Course::new(strategy, &[1.0 + strategy.len() as f64 / 10.0]) });
        }
    }
    let report = report(&results(&courses));
    for n_peers in [2, 4] {
        for link in ["10Mbit/20ms", "1Gbit/1ms"] {
            let title = format!("Accuracy against time: {link}, {n_peers} peers");
            let other = format!("Accuracy against time: {n_peers} peers, {link}");
            assert!(report.html.contains(&title) || report.html.contains(&other), "{title}");
        }
    }
    report.says("gossip was the first to reach 95.0 %: after 6.4 s.");
}

#[test]
fn a_report_is_made_again_over_an_old_one() {
    let results = clear_winner();
    let report = report(&results);
    let Outcome::Done(_) = &results.runs[0].outcome else { panic!("the first run is done") };
    write(&results, report.folder.path()).expect("a second report");
    let again = fs::read_to_string(report.folder.path().join("report.html")).expect("the page");
    assert_eq!(again, report.html);
}

#[test]
fn the_summary_says_how_far_off_what_was_predicted_is() {
    report(&clear_winner()).says("Speeds were 0.91 to 0.91 times the predicted speed, in the median 0.91 times.");
}

#[test]
fn figures_of_the_last_report_go_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let figures = folder.path().join("figures");
    fs::create_dir(&figures).expect("a folder");
    for name in ["old.svg", "note.txt"] {
        fs::write(figures.join(name), "").expect("a file");
    }
    write(&clear_winner(), folder.path()).expect("a report");
    assert!(!figures.join("old.svg").exists());
    assert!(figures.join("note.txt").exists() && figures.join("speed-up.svg").exists());
}
