//! What comes from another machine is not trusted with the files of this one.

use nettorrent_engine::data::Tokens;
use nettorrent_engine::data::source::DataSpec;
use nettorrent_engine::job::Job;
use nettorrent_net::service::JobPackage;
use nettorrent_session::needs::{MachineLimits, Needs};
use nettorrent_session::{SessionError, Training};

#[test]
fn no_path_that_a_swarm_names_is_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("private.csv");
    std::fs::write(&path, (0..40).map(|i| format!("{i},{},{}\n", i * i, i % 2)).collect::<String>()).expect("a file");
    // The swarm has guessed what is in the file, and what it is called.
    let data = DataSpec { name: Some("mnist".into()), path: Some(path), ..DataSpec::default() };
    let job = Job { model: "mlp:4".into(), data, ..Job::default() };
    let mut package = Training::from_job(job.clone(), 1).expect("a swarm that can start").package;
    assert!(!package.job.contains("private.csv"), "honest peers do not tell where their data are: {}", package.job);
    package.job = toml::to_string(&job).expect("a job");
    let Err(error) = Training::from_package(&package, None, Some(1), None) else { panic!("the file was opened") };
    assert!(!error.to_string().contains("private.csv"), "{error}");
    // Whoever joins may name the file itself.
    let own = job.data.path.as_deref().and_then(|path| path.to_str()).expect("a path in UTF-8");
    Training::from_package(&package, Some(own), Some(1), None).expect("the same data");
    let unnamed = Job { data: DataSpec { name: None, ..job.data.clone() }, ..job.clone() };
    package.job = toml::to_string(&unnamed).expect("a job");
    assert!(matches!(Training::from_package(&package, None, Some(1), None), Err(SessionError::NoData(_))));
}

#[test]
fn a_tokenizer_that_a_swarm_names_is_looked_for_beside_the_data_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let (texts, private) = (folder.path().join("texts"), folder.path().join("private"));
    for folder in [&texts, &private] {
        std::fs::create_dir(folder).expect("a folder");
    }
    std::fs::write(texts.join("a.txt"), "to be or not to be, that is the question. ".repeat(50)).expect("a file");
    let data =
        DataSpec { path: Some(texts.clone()), tokens: Some(Tokens::Bytes), length: Some(8), ..DataSpec::default() };
    let job = Job { model: "gpt:1x8x1".into(), data, ..Job::default() };
    let mut package = Training::from_job(job.clone(), 1).expect("a swarm that can start").package;
    let secret = private.join("secret.json");
    std::fs::write(&secret, "{").expect("a file");
    let tokens = Some(Tokens::File(secret));
    package.job = toml::to_string(&Job { data: DataSpec { tokens, ..job.data }, ..job }).expect("a job");
    let join =
        || Training::from_package(&package, texts.to_str(), Some(1), None).err().expect("no tokenizer").to_string();
    let error = join();
    assert!(error.contains("`secret.json`") && error.contains("--data PATH"), "{error}");
    // One of that name beside the data is meant, and read.
    std::fs::write(texts.join("secret.json"), "no tokenizer").expect("a file");
    let error = join();
    assert!(error.contains("texts") && !error.contains("private"), "{error}");
}

#[test]
fn a_job_with_control_characters_is_refused() {
    let job = Job { model: "mlp:4".into(), ..Job::default() };
    let package = Training::from_job(job.clone(), 1).expect("a swarm that can start").package;
    Training::from_package(&package, None, Some(1), None).expect("an honest one");
    for model in ["\u{1b}]0;owned\u{7}", "a\nb", "\u{202e}x"] {
        let job = toml::to_string(&Job { model: model.into(), ..job.clone() }).expect("a job");
        let hostile = JobPackage { job, ..package.clone() };
        let error = Training::from_package(&hostile, None, Some(1), None).err().expect("it is refused").to_string();
        assert!(error.contains("control characters") && !error.contains('\u{1b}'), "{error:?}");
    }
    let hostile = JobPackage { job: format!("{}\n\"\\u001b[2J\" = 1\n", package.job), ..package.clone() };
    let error = Training::from_package(&hostile, None, Some(1), None).err().expect("it is refused").to_string();
    assert!(error.contains("control characters"), "{error:?}");
}

#[test]
fn a_model_that_no_machine_can_hold_is_refused_before_memory_is_taken_for_it() {
    let job = Job { model: "mlp:8".into(), ..Job::default() };
    let honest = Training::from_job(job, 1).expect("a swarm that can start").package;
    let limits = MachineLimits { memory: 1 << 40, disk: u64::MAX };
    let check = |package: &JobPackage| {
        let training = Training::from_package(package, None, Some(1), None)?;
        Needs::of(&training)?.check(&limits)
    };
    check(&honest).expect("a small one");
    // 64 inputs: the parameters alone would be twice as much as a process can address, so whoever asked for the memory would abort.
    for out in [1_000_000_000_000_u64, 1_000_000_000_000_000] {
        let model = honest.model.replace("out = 8", &format!("out = {out}"));
        assert_ne!(model, honest.model);
        let error = check(&JobPackage { model, ..honest.clone() }).expect_err("it is refused");
        assert!(matches!(&error, SessionError::TooMuch(text) if text.contains("--max-memory")), "{error}");
    }
}
