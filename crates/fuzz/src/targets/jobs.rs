//! What people write: jobs, models and scenarios.

use nettorrent_engine::job::{Job, build_network, read_toml};
use nettorrent_engine::model::{ModelSpec, zoo};
use nettorrent_sim::Scenario;

use crate::target::Target;

/// The file of a job.
pub(super) const JOBS: Target = Target {
    name: "jobs",
    about: "a job file",
    seeds: || {
        let text = toml::to_string(&Job::default()).expect("the usual job can be written");
        let swarm = "model = \"mlp:16\"\nepochs = 3\nbatch = 32\n[swarm]\npeers = 4\nstrategy = \"gossip\"\nsplit = \"groups:2:3\"\n\
                     warmup = \"all-data\"\nscale = \"linear\"\n[swarm.options]\ncodec = \"bf16\"\nlocal_steps = \"auto\"\n";
        let pipeline = "epochs = 1\n[pipeline]\nstages = [{ layers = 4 }, { layers = 6, batch_shards = 2 }]\n[optimizer]\nkind = \
                        \"adamw\"\nlr = 1e-3\n[schedule]\nkind = \"cosine\"\nwarmup = 0.5\n[evaluate]\nevery = \"10 batches\"\n";
        [text.as_str(), swarm, pipeline].map(|text| text.as_bytes().to_vec()).to_vec()
    },
    words: &["[swarm]\n", "[data]\n", "[schedule]\n", "inf", "nan", "-1", "\"\"", " = ", "[[", "]]", "{}", "true"],
    read: |input| {
        let text = String::from_utf8_lossy(input);
        match Job::parse("job.toml", &text, &[]) {
            Err(error) => error.to_string(),
            Ok(job) => {
                let written = toml::to_string(&job).expect("what was read can be written");
                assert_eq!(Job::parse("job.toml", &written, &[]).expect("what was written can be read"), job);
                job.swarm.strategy
            }
        }
    },
    most_bytes: 1 << 20,
    times_input: 600,
    n_quick: 3_000,
};

/// The file of a model.
pub(super) const MODELS: Target = Target {
    name: "models",
    about: "the description of a network",
    seeds: || {
        let described =
            |name: &str, input: &[usize]| zoo::describe(name, Some(input), Some(10)).expect("it is in the zoo");
        let models = [("mlp:16", &[8, 8, 1][..]), ("digits-cnn", &[8, 8, 1]), ("resnet20", &[32, 32, 3])];
        let text = |(name, input)| toml::to_string(&described(name, input)).expect("a description can be written");
        models.map(|model| text(model).into_bytes()).to_vec()
    },
    words: &[
        "[[layers]]\n",
        "kind = \"dense\"\n",
        "kind = \"conv\"\n",
        "outputs = ",
        "stride = ",
        "padding = ",
        "name = \"x\"\n",
    ],
    read: |input| {
        let text = String::from_utf8_lossy(input);
        let spec: ModelSpec = match read_toml("model.toml", &text) {
            Err(error) => return error.to_string(),
            Ok(spec) => spec,
        };
        let written = toml::to_string(&spec).expect("what was read can be written");
        assert_eq!(read_toml::<ModelSpec>("model.toml", &written).expect("what was written can be read"), spec);
        match build_network("model.toml", &spec) {
            Err(error) => error.to_string(),
            Ok(network) => format!("a network of {} tensors", "i".repeat(network.tensors().len().min(8))),
        }
    },
    most_bytes: 4 << 20,
    times_input: 2000,
    n_quick: 2_000,
};

/// The file of a scenario.
pub(super) const SCENARIOS: Target = Target {
    name: "scenarios",
    about: "a scenario of the simulator",
    seeds: || {
        let more = "link = \"50mbit/20ms\"\nattack = \"scaled:10\"\nattackers = 1\n[stragglers]\nshare = 0.25\nfactor = 4.0\n[[faults]]\n\
                    peer = 1\nwhen = { at = \"5s\" }\nwhat = \"kill\"\n[[joins]]\nat = \"10s\"\n[[partitions]]\npeers = [1]\nfrom = \"3s\"\n\
                    until = \"60s\"\n";
        let wan = toml::to_string(&Scenario::wan()).expect("a scenario can be written");
        vec![wan.into_bytes(), more.as_bytes().to_vec()]
    },
    words: &["ms", "gbit", "inf", "nan", "1e300s", "[[slow]]\n", "[[links]]\n", "-"],
    read: |input| {
        let text = String::from_utf8_lossy(input);
        match read_toml::<Scenario>("scenario.toml", &text) {
            Err(error) => error.to_string(),
            Ok(scenario) => match scenario.check(3) {
                Err(error) => error.to_string(),
                Ok(()) => {
                    let written = toml::to_string(&scenario).expect("what was read can be written");
                    assert_eq!(toml::from_str::<Scenario>(&written).expect("what was written can be read"), scenario);
                    "a scenario".to_owned()
                }
            },
        }
    },
    most_bytes: 1 << 20,
    times_input: 600,
    n_quick: 3_000,
};
