//! The blocks that a peer holds, the messages between them, and which of them computes next.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::wire::Frame;
use nettorrent_swarm::{Done, Input, Malformed, Outbox, Peer, PeerId, State, What, Work};

use crate::block::{Block, BlockOutbox, pipeline_id};
use crate::directory::Directory;
use crate::early::Sender;
use crate::message::Message;
use crate::pass::Urgency;
use crate::position::{Key, Position};
use crate::work::PartDone;

/// The blocks of one peer, by address.
#[derive(Default)]
pub(crate) struct Blocks {
    blocks: BTreeMap<usize, Block>,
    /// What is being computed: the work's name, and for which block and pass.
    running: Option<(u64, usize, Key)>,
    n_works: u64,
    /// Messages between blocks of this peer.
    local: VecDeque<Message>,
    uplink: Option<f64>,
}

impl Blocks {
    pub(crate) fn addresses(&self) -> Vec<usize> {
        self.blocks.keys().copied().collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.blocks.values()
    }

    pub(crate) fn get(&self, address: usize) -> &Block {
        &self.blocks[&address]
    }

    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Another block is to be held.
    pub(crate) fn add(&mut self, address: usize, state: State, directory: &Directory) {
        let (setup, n_slots) = (directory.setup.clone(), directory.setup.n_slots());
        let position = Position { setup, pipeline: address / n_slots, slot: address % n_slots };
        self.blocks.insert(address, Block::new(position, state));
    }

    /// The ranks that its blocks wait for: other blocks of their pipelines, or their replicas.
    pub(crate) fn waits_for(&self, directory: &Directory) -> Vec<usize> {
        self.iter().flat_map(|block| awaited_by(block, directory)).collect()
    }

    /// All is agreed: the blocks begin.
    pub(crate) fn start(&mut self, directory: &Directory, out: &mut Outbox) {
        self.running = None;
        self.local.clear();
        let uplink = self.uplink;
        for address in self.addresses() {
            self.with(address, directory, out, |block, posted| {
                if let Some(uplink) = uplink {
                    let told = block.feed(directory.now, Input::Uplink(uplink), posted);
                    told.expect("what the host says is not malformed");
                }
                block.start(directory.now, directory.view.number, directory.n_pipelines(), posted);
            });
        }
    }

    /// Has a block do something, and sends what it wants sent.
    fn with<T>(
        &mut self,
        address: usize,
        directory: &Directory,
        out: &mut Outbox,
        act: impl FnOnce(&mut Block, &mut BlockOutbox) -> T,
    ) -> T {
        let mut posted = BlockOutbox::default();
        let done = act(self.blocks.get_mut(&address).expect("a block that is here"), &mut posted);
        self.post(address, posted, directory, out);
        done
    }

    /// What the replica of a block in another pipeline says to this one's.
    pub(crate) fn on_replica_frame(
        &mut self,
        (rank, frame): (usize, Frame),
        directory: &Directory,
        out: &mut Outbox,
    ) -> Result<(), Malformed> {
        let (n_slots, holders) = (directory.setup.n_slots(), &directory.holders);
        let other = |address: usize| {
            let mut others = (address % n_slots..holders.len()).step_by(n_slots);
            others.find(|&other| other != address && holders[other] == rank)
        };
        let pair = self.blocks.keys().find_map(|&address| Some((address, other(address)?)));
        let Some((address, other)) = pair else {
            return Err(Malformed::new("it holds no replica of a block that is here"));
        };
        let from = pipeline_id(other / n_slots);
        self.with(address, directory, out, |block, posted| {
            block.feed(directory.now, Input::Frame { from, frame }, posted)
        })
    }

    /// One block speaks to another one, here, about a pass.
    pub(crate) fn on_message(
        &mut self,
        (message, sender): (Message, Sender),
        directory: &Directory,
        out: &mut Outbox,
    ) -> Result<(), Malformed> {
        let (address, n_slots) = (message.label.to, directory.setup.n_slots());
        let is_same_pipeline = message.label.from / n_slots == address / n_slots;
        if !is_same_pipeline || !self.blocks.contains_key(&address) {
            return Err(Malformed::new("it speaks to a block that is not here"));
        }
        self.with(address, directory, out, |block, posted| block.on_message(directory.now, (message, sender), posted))
    }

    /// Work came back. What was begun in another view is not wanted any more.
    pub(crate) fn on_done(&mut self, done: Done, took: Duration, directory: &Directory, out: &mut Outbox) {
        let (id, result) = match done {
            Done::Other { id, result } => (id, result),
            Done::Failed { problem } => return out.failure = Some(problem),
            _ => return,
        };
        let Some((_, address, key)) = self.running.take_if(|(running, ..)| *running == id) else { return };
        let Ok(part) = result.downcast::<PartDone>() else { return };
        if !self.blocks.contains_key(&address) {
            return;
        }
        let problem = self.with(address, directory, out, |block, posted| {
            let result = block.on_done(directory.now, key, (*part, took), posted);
            result.err().map(|problem| (problem, block.replica.place().version.round))
        });
        if let Some((problem, round)) = problem {
            out.failure = Some(format!(
                "{problem} in round {round}; lower optimizer.lr, or add schedule.warmup, and go on from the last good \
                 checkpoint"
            ));
        }
    }

    /// The host has found out how many bytes a second this peer's links carry.
    pub(crate) fn on_uplink(&mut self, bytes_per_s: f64, directory: &Directory, out: &mut Outbox) {
        self.uplink = Some(bytes_per_s);
        self.feed_all(&|| Input::Uplink(bytes_per_s), directory, out);
    }

    /// Hands all blocks an input of the host's.
    pub(crate) fn feed_all(&mut self, input: &dyn Fn() -> Input, directory: &Directory, out: &mut Outbox) {
        for address in self.addresses() {
            let told = self.with(address, directory, out, |block, posted| block.feed(directory.now, input(), posted));
            told.expect("what the host says is not malformed");
        }
    }

    /// Takes the messages between its own blocks and has something computed, until there is no more.
    pub(crate) fn go_on(&mut self, directory: &Directory, out: &mut Outbox) {
        loop {
            while let Some(message) = self.local.pop_front() {
                if let Err(problem) = self.on_message((message, Sender::Oneself), directory, out) {
                    out.failure = Some(format!("one block of this peer does not understand another: {problem}"));
                }
            }
            self.compute(directory, out);
            if self.local.is_empty() {
                return;
            }
        }
    }

    /// Has the most urgent pass of all blocks computed, if nothing is.
    fn compute(&mut self, directory: &Directory, out: &mut Outbox) {
        if self.running.is_some() {
            return;
        }
        let mut best: Option<(Urgency, usize, Key)> = None;
        for address in self.addresses() {
            let found = self.with(address, directory, out, |block, posted| {
                block.most_urgent(posted).or_else(|| {
                    // A pass may have ended without anything computed, and others may follow.
                    block.go_on(directory.now, posted);
                    block.most_urgent(posted)
                })
            });
            if let Some((urgency, key)) = found
                && best.is_none_or(|(most, ..)| urgency < most)
            {
                best = Some((urgency, address, key));
            }
        }
        let Some((_, address, key)) = best else { return };
        self.n_works += 1;
        let id = self.n_works;
        let (work, values) = self.blocks.get_mut(&address).expect("it was just found").begin(key);
        self.running = Some((id, address, key));
        out.work.push(Work { id, what: What::Other { values, work: Box::new(work) } });
    }

    /// Sends what a block wants sent, and tells what there is to tell.
    fn post(&mut self, address: usize, posted: BlockOutbox, directory: &Directory, out: &mut Outbox) {
        let BlockOutbox { messages, replica, refused } = posted;
        let (n_slots, slot) = (directory.setup.n_slots(), directory.slot(address));
        let holder = |id: PeerId| directory.holder(id.join_index() as usize * n_slots + slot);
        out.frames.extend(replica.frames.into_iter().map(|(to, frame)| (holder(to), frame)));
        out.refused.extend(replica.refused.into_iter().map(|(from, problem)| (holder(from), problem)));
        out.refused.extend(refused.into_iter().map(|(from, problem)| (directory.holder(from), problem)));
        out.timers.extend(replica.timers);
        out.failure = out.failure.take().or(replica.failure);
        // Where a peer holds several blocks, the first tells of the rounds; views and the end are told for all of them.
        let tells = self.blocks.keys().next() == Some(&address);
        let is_told = |event: &Event| !matches!(event, Event::View { .. } | Event::Finished { .. }) && tells;
        let records = replica.records.into_iter().filter(|record| is_told(&record.event));
        out.records.extend(records.map(|record| Record { peer: directory.me, ..record }));
        for message in messages {
            self.send(message, directory, out);
        }
    }

    /// Sends a message to the block it is addressed to.
    fn send(&mut self, message: Message, directory: &Directory, out: &mut Outbox) {
        let holder = directory.holders[message.label.to];
        if holder == directory.rank {
            return self.local.push_back(message);
        }
        if let Some(block) = self.blocks.get_mut(&message.label.from) {
            block.count_sent(message.body.len());
        }
        directory.tell(holder, message, out);
    }
}

/// The ranks that a block waits for: the other blocks of its pipeline, and its replicas.
fn awaited_by(block: &Block, directory: &Directory) -> impl Iterator<Item = usize> {
    let n_slots = directory.setup.n_slots();
    let replica = |id: &PeerId| id.join_index() as usize * n_slots + block.position.slot;
    let replicas: Vec<usize> = block.replica.status().waits_for.iter().map(replica).collect();
    let in_pipeline = block.waits_for().into_iter().map(|slot| block.position.address(slot));
    in_pipeline.chain(replicas).map(|address| directory.holders[address])
}
