//! How long a ring all-reduce takes between processes on this machine, over the real network stack.
//!
//! `cargo bench -p nettorrent-net --bench all_reduce -- --peers 3 --floats 1200000 --plain` prints one JSON object.
//! `bench/collectives_vs_gloo` runs it beside PyTorch's gloo.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_engine::kernel::{LineAligned, keep_memory};
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::stateless::{Stateless, StatelessWorker};
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;
use nettorrent_net::address::Address;
use nettorrent_net::endpoint::{Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::hello::Purpose;
use nettorrent_net::machine::Machine;
use nettorrent_net::membership::{Config, Member};
use nettorrent_net::node::{Node, NodeSettings};
use nettorrent_net::service::JobPackage;
use nettorrent_net::ticket::Secret;
use nettorrent_net::{Load, block_on};
use nettorrent_swarm::codec::Codec;
use nettorrent_swarm::collective::{Collective, Extent, Ring};
use nettorrent_swarm::sampling::rounds::RoundLength;
use nettorrent_swarm::strategy::{
    AnyStrategy, Cost, CostQuestion, Counted, Malformed, Message, Mixing, OptimizerState, Payload, RoundCtx, RoundPlan,
    RoundStrategy, Scale, Strategy,
};
use nettorrent_swarm::{PeerId, Setup, State};

#[global_allocator]
static ALLOCATOR: LineAligned = LineAligned;

/// A vector that nothing is learnt about.
struct Vector(Layout);

impl Task for Vector {
    fn layout(&self) -> &Layout {
        &self.0
    }

    fn init(&self, _: u64) -> Vec<f32> {
        vec![0.0; self.n_values()]
    }

    fn labels(&self) -> &[u32] {
        &[0; 64]
    }

    fn n_test(&self) -> usize {
        0
    }

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        Ok(Box::new(StatelessWorker(self)))
    }
}

impl Stateless for Vector {
    fn gradient(&self, _: &[f32], indices: &[usize], _: u64, sink: &mut GradientSink<'_>) -> Result<Score, TrainError> {
        sink(0, &vec![0.0; self.n_values()]);
        Ok(Score { n: indices.len(), ..Score::default() })
    }

    fn score(&self, _: &[f32], _: &[usize]) -> Result<Score, TrainError> {
        Ok(Score::default())
    }

    fn test(&self, _: &[f32], _: Range<usize>) -> Result<Score, TrainError> {
        Ok(Score::default())
    }
}

/// One exchange after the other within a round, as fast as they go.
struct Repeat {
    ring: Ring,
    n_warm_up: u64,
    n_timed: u64,
    n_done: u64,
    began: Duration,
    /// Where the time goes, in nanoseconds.
    result: Arc<AtomicU64>,
}

impl Repeat {
    fn go_on(&mut self, ctx: &mut RoundCtx<'_>) {
        while self.ring.is_complete() {
            let mut vector = self.ring.take_result();
            self.n_done += 1;
            if self.n_done == self.n_warm_up {
                self.began = ctx.now();
            }
            if self.n_done == self.n_warm_up + self.n_timed {
                let elapsed = ctx.now() - self.began;
                self.result.store(elapsed.as_nanos() as u64, Ordering::SeqCst);
                return ctx.finish_round(vector, Counted::All);
            }
            self.ring.begin(ctx);
            self.ring.put(ctx, 0, vector.remove(0));
        }
    }
}

impl Strategy for Repeat {
    fn round_plan(&self) -> RoundPlan {
        RoundPlan {
            payload: Payload::Gradients,
            length: RoundLength::Batches(1),
            scale: Scale::Share,
            mixing: Mixing::Full,
            optimizer_state: OptimizerState::Keep,
        }
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        self.ring.cost(question)
    }

    fn waits_for(&self) -> Vec<usize> {
        self.ring.waits_for()
    }
}

impl RoundStrategy for Repeat {
    fn on_part(&mut self, ctx: &mut RoundCtx<'_>, bucket: usize, numbers: Vec<f32>) {
        self.ring.put(ctx, bucket, numbers);
        self.go_on(ctx);
    }

    fn on_message(&mut self, ctx: &mut RoundCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        self.ring.receive(ctx, from, message)?;
        self.go_on(ctx);
        Ok(())
    }

    fn on_view(&mut self, ctx: &mut RoundCtx<'_>) {
        self.ring.begin(ctx);
    }
}

/// What is measured.
#[derive(Clone)]
struct Arguments {
    n_peers: usize,
    n_floats: usize,
    n_timed: u64,
    plain: bool,
}

fn main() {
    keep_memory();
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().position(|word| word == name).map(|at| arguments[at + 1].clone());
    let number = |name: &str, default: usize| value(name).map_or(default, |text| text.parse().expect("a number"));
    let measured = Arguments {
        n_peers: number("--peers", 3),
        n_floats: number("--floats", 1_200_000),
        n_timed: number("--times", 100) as u64,
        plain: arguments.iter().any(|word| word == "--plain"),
    };
    if let Some(join_index) = value("--join-index") {
        return be_peer(&measured, join_index.parse().expect("a join index"));
    }
    if arguments.iter().any(|word| word == "--test") {
        return;
    }
    let seconds = measure(&measured);
    let Arguments { n_peers, n_floats, n_timed, plain } = measured;
    println!(
        r#"{{"peers":{n_peers},"floats":{n_floats},"times":{n_timed},"encrypted":{},"seconds":{seconds:e}}}"#,
        !plain
    );
}

/// Starts the peers and introduces them to each other; how long an exchange takes, as the first of them says.
fn measure(measured: &Arguments) -> f64 {
    let secret = Secret::random();
    let secret: String =
        postcard::to_allocvec(&secret).expect("plain bytes").iter().map(|byte| format!("{byte:02x}")).collect();
    let mut peers: Vec<_> = (0..measured.n_peers)
        .map(|join_index| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args(["--join-index", &join_index.to_string(), "--peers", &measured.n_peers.to_string()]);
            command.args(["--floats", &measured.n_floats.to_string(), "--times", &measured.n_timed.to_string()]);
            command.args(measured.plain.then_some("--plain"));
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a peer starts")
        })
        .collect();
    let mut outputs: Vec<_> =
        peers.iter_mut().map(|peer| BufReader::new(peer.stdout.take().expect("its output"))).collect();
    let mut members = String::new();
    for (peer, output) in peers.iter_mut().zip(&mut outputs) {
        writeln!(peer.stdin.as_mut().expect("its input"), "{secret}").expect("it listens");
        let mut line = String::new();
        output.read_line(&mut line).expect("it says where it is");
        members.push_str(line.trim());
        members.push(' ');
    }
    for peer in &mut peers {
        writeln!(peer.stdin.as_mut().expect("its input"), "{members}").expect("it listens");
    }
    let mut line = String::new();
    outputs[0].read_line(&mut line).expect("it says how long it took");
    peers.iter_mut().for_each(|peer| drop(peer.wait()));
    line.trim().parse().expect("seconds")
}

fn be_peer(measured: &Arguments, join_index: u32) {
    let line = || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("orders");
        line.trim().to_owned()
    };
    let secret = line();
    let byte = |at: usize| u8::from_str_radix(&secret[2 * at..2 * at + 2], 16).expect("a secret in hexadecimal");
    let secret = Secret::from_bytes(std::array::from_fn(byte));
    let identity = Founder::from_secret(&secret).member(join_index).expect("an identity");
    let id = identity.peer;
    let encryption = if measured.plain { Encryption::Off } else { Encryption::On };
    let run = async {
        let settings = Settings {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            encryption,
            ..Settings::new(identity, Purpose::Peer { generation: 0, job: [0; 32] })
        };
        let (endpoint, arrivals) = Endpoint::bind(settings).await.expect("a free port");
        let address = endpoint.local_address().clone();
        println!("{}@{address}", id.0);
        let members: Vec<Member> = line().split_whitespace().map(member).filter(|member| member.id != id).collect();
        let result = Arc::new(AtomicU64::new(0));
        let mut node = node(measured, (endpoint, arrivals), address, &result);
        let (_commands, orders) = tokio::sync::mpsc::channel(1);
        node.run(members, orders, tokio::sync::mpsc::unbounded_channel().1, &mut |_, _| {}).await;
        result.load(Ordering::SeqCst) as f64 * 1e-9 / measured.n_timed as f64
    };
    let load = Load { n_processes: measured.n_peers, n_bytes: 4 * measured.n_floats };
    println!("{}", block_on(load, run).expect("a runtime"));
}

fn member(text: &str) -> Member {
    let (id, address) = text.split_once('@').expect("a member");
    Member { id: PeerId(id.parse().expect("a name")), generation: 0, address: address.parse().expect("an address") }
}

fn node(
    measured: &Arguments,
    endpoint: (Endpoint, tokio::sync::mpsc::Receiver<nettorrent_net::endpoint::Arrival>),
    address: Address,
    result: &Arc<AtomicU64>,
) -> Node {
    let id = endpoint.0.identity().peer;
    let task = Arc::new(Vector(Layout::of_tensors([("vector", [measured.n_floats].as_slice())])));
    let job = Job { epochs: 1, batch: 64, ..Job::default() };
    let setup = Arc::new(Setup::new(&job, task).expect("a setup"));
    let strategy = Repeat {
        ring: Ring::new(Codec::F32, Extent::AllReduce),
        n_warm_up: measured.n_timed.div_ceil(5),
        n_timed: measured.n_timed,
        n_done: 0,
        began: Duration::ZERO,
        result: result.clone(),
    };
    let state = State::fresh(setup.training());
    let peer = setup.peer_with_strategy(id, AnyStrategy::round(strategy), state);
    let settings = NodeSettings {
        package: JobPackage { job: String::new(), model: String::new(), data: [[0; 32]; 2] },
        membership: Config { wait_for: measured.n_peers, deadline: Duration::from_secs(60), ..Config::default() },
        address,
        threads: 1,
        machine: Machine::Here,
        host: String::new(),
        measures_waits: true,
    };
    Node::new(endpoint, setup, peer, settings).expect("a node")
}
