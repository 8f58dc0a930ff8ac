//! A peer of a layer network: the blocks that it holds, and the post between them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::model::Part;

use super::agreeing::Agreement;
use super::block::{Block, BlockOutbox, pipeline_id};
use super::label::{Label, Letter, Subject};
use super::marking::FirstMember;
use super::marks::Vault;
use super::network::LayerNetwork;
use super::origin::Origin;
use super::pass::Urgency;
use super::seat::Key;
use super::snapshot::IncomingState;
use crate::effects::{Input, Outbox, Phase, Status};
use crate::held::HeldFrames;
use crate::malformed::Malformed;
use crate::place::Place;
use crate::record::{Event, Record};
use crate::setup::Setup;
use crate::view::{PeerId, View};
use crate::wire::{Frame, Kind};
use crate::work::{Done, What, Work};

/// A block that a peer holds.
#[derive(Clone, Debug)]
pub struct BlockView {
    /// In which of the pipelines.
    pub pipeline: usize,
    /// In which of its slots.
    pub slot: usize,
    /// Which part of the network it is.
    pub part: Arc<Part>,
    /// Its numbers.
    pub values: Arc<Vec<f32>>,
}

/// What is kept from one peer until the members have agreed on who holds what.
const HELD_BYTES: usize = 256 << 20;

/// A peer of a layer network.
pub struct LayerPeer {
    pub(super) me: PeerId,
    pub(super) setup: Arc<Setup>,
    pub(super) network: Arc<LayerNetwork>,
    pub(super) origin: Origin,
    pub(super) now: Duration,
    pub(super) view: View,
    pub(super) rank: usize,
    pub(super) agreement: Agreement,
    /// By address (a slot, counted over all pipelines), who holds the block, by rank.
    pub(super) holders: Vec<usize>,
    pub(super) blocks: BTreeMap<usize, Block>,
    /// By address, the round and the epoch of the last mark.
    pub(super) marked: BTreeMap<usize, (u32, u64)>,
    pub(super) vault: Vault,
    /// Copies of others' marks that are on their way, by slot.
    pub(super) copies: BTreeMap<usize, IncomingState>,
    pub(super) first: FirstMember,
    pub(super) has_told_done: bool,
    pub(super) is_finished: bool,
    /// What is being computed: the work's name, and for which block and pass.
    running: Option<(u64, usize, Key)>,
    n_works: u64,
    /// Letters between blocks of this peer.
    pub(super) local: VecDeque<Letter>,
    held: HeldFrames,
    place: Place,
    uplink: Option<f64>,
    phase: Phase,
    phase_began: Duration,
}

impl LayerPeer {
    /// A peer that holds nothing yet.
    ///
    /// # Panics
    /// If the setup is not that of a layer network.
    pub fn new(me: PeerId, setup: Arc<Setup>, origin: Origin) -> Self {
        let network = setup.layers.clone().expect("a setup with layers");
        Self {
            me,
            setup,
            network,
            origin,
            now: Duration::ZERO,
            view: View::new(0, vec![me]),
            rank: 0,
            agreement: Agreement::Waiting,
            holders: Vec::new(),
            blocks: BTreeMap::new(),
            marked: BTreeMap::new(),
            vault: Vault::default(),
            copies: BTreeMap::new(),
            first: FirstMember::default(),
            has_told_done: false,
            is_finished: false,
            running: None,
            n_works: 0,
            local: VecDeque::new(),
            held: HeldFrames::default(),
            place: Place::default(),
            uplink: None,
            phase: Phase::Agreeing,
            phase_began: Duration::ZERO,
        }
    }

    /// Takes one input and says what is to be done. An error is the sender's fault.
    pub fn handle(&mut self, now: Duration, input: Input, out: &mut Outbox) -> Result<(), Malformed> {
        self.now = now;
        match input {
            Input::View(view) => self.on_view(view, out)?,
            Input::Frame { from, frame } => self.on_frame(from, frame, out)?,
            Input::Done { done, took } => self.on_done(done, took, out),
            Input::Timer(token) => self.feed_all(&|| Input::Timer(token), out),
            Input::Uplink(bytes_per_s) => {
                self.uplink = Some(bytes_per_s);
                self.feed_all(&|| Input::Uplink(bytes_per_s), out);
            }
        }
        self.go_on(out);
        Ok(())
    }

    /// The view it is in.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// How far it is.
    pub fn place(&self) -> &Place {
        self.blocks.values().next().map_or(&self.place, |block| block.replica.place())
    }

    /// Whether all has been done by all.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// The blocks that it holds.
    pub fn blocks(&self) -> Vec<BlockView> {
        let view = |block: &Block| BlockView {
            pipeline: block.seat.pipeline,
            slot: block.seat.slot,
            part: self.network.part(block.seat.slot).clone(),
            values: block.replica.values().clone(),
        };
        self.blocks.values().map(view).collect()
    }

    /// What it is doing, and whom it waits for.
    pub fn status(&self) -> Status {
        let place = self.place();
        let mut waits_for: Vec<usize> = match &self.agreement {
            Agreement::Reached => self.blocks.values().flat_map(|block| self.awaited_by(block)).collect(),
            agreement => agreement.waits_for(self.view.len()),
        };
        waits_for.sort_unstable();
        waits_for.dedup();
        let others = waits_for.into_iter().filter(|&rank| rank != self.rank);
        Status {
            phase: self.phase,
            epoch: place.ledger.epoch,
            round: place.standing.round,
            waits_for: others.filter_map(|rank| self.view.members.get(rank).copied()).collect(),
            began: self.phase_began,
        }
    }

    /// The ranks that a block waits for: the other blocks of its pipeline, or its replicas.
    fn awaited_by(&self, block: &Block) -> Vec<usize> {
        let status = block.replica.status();
        if status.phase == Phase::Training || status.phase == Phase::Testing {
            let addresses = block.waits_for().into_iter().map(|slot| block.seat.address(slot));
            return addresses.map(|address| self.holders[address]).collect();
        }
        let n_slots = self.network.n_slots();
        let address = |id: &PeerId| id.seat() as usize * n_slots + block.seat.slot;
        status.waits_for.iter().map(|id| self.holders[address(id)]).collect()
    }

    pub(super) fn record(&self, event: Event) -> Record {
        Record { peer: self.me, at_s: self.now.as_secs_f64(), event }
    }

    fn on_frame(&mut self, from: PeerId, frame: Frame, out: &mut Outbox) -> Result<(), Malformed> {
        let view = self.view.number;
        if frame.head.view > view {
            return self.hold(from, frame);
        }
        if frame.head.view < view {
            // What was said in a view that is over is void.
            return Ok(());
        }
        let rank = self.view.rank(from).ok_or_else(|| Malformed::new("it does not belong to this view"))?;
        if frame.head.kind != Kind::Layers {
            if !matches!(self.agreement, Agreement::Reached) {
                return self.hold(from, frame);
            }
            return self.on_replica_frame(rank, frame, out);
        }
        let letter = Letter { label: Label::from_part(frame.head.part)?, round: frame.head.round, body: frame.body };
        match letter.label.subject {
            Subject::Claim | Subject::Verdict => self.on_agreement(rank, &letter, out),
            // Who sends a state may be quicker than the first member, who says that this peer needs it.
            Subject::State if matches!(self.agreement, Agreement::Waiting) => self.hold_letter(from, letter),
            Subject::State => self.on_state(rank, &letter, out),
            _ if !matches!(self.agreement, Agreement::Reached) => self.hold_letter(from, letter),
            Subject::Copy => self.on_copy(rank, &letter, out),
            Subject::Held | Subject::Settled | Subject::Ask | Subject::Save | Subject::Done | Subject::AllDone => {
                self.on_mark_letter(rank, &letter, out)
            }
            _ => {
                if self.holders.get(letter.label.from) != Some(&rank) {
                    return Err(Malformed::new("it speaks for a block that it does not hold"));
                }
                self.on_letter(letter, out)
            }
        }
    }

    /// What the replica of a block in another pipeline says to this one's.
    fn on_replica_frame(&mut self, rank: usize, frame: Frame, out: &mut Outbox) -> Result<(), Malformed> {
        let n_slots = self.network.n_slots();
        let holders = &self.holders;
        let other = |address: usize| {
            let mut others = (address % n_slots..holders.len()).step_by(n_slots);
            others.find(|&other| other != address && holders[other] == rank)
        };
        let pair = self.blocks.keys().find_map(|&address| Some((address, other(address)?)));
        let Some((address, other)) = pair else {
            return Err(Malformed::new("it holds no replica of a block that is here"));
        };
        let from = pipeline_id(other / n_slots);
        let mut posted = BlockOutbox::default();
        let block = self.blocks.get_mut(&address).expect("it was just found");
        let result = block.feed(self.now, Input::Frame { from, frame }, &mut posted);
        self.post(address, posted, out);
        result
    }

    /// One block speaks to another one, here, about a pass.
    fn on_letter(&mut self, letter: Letter, out: &mut Outbox) -> Result<(), Malformed> {
        let address = letter.label.to;
        let is_same_pipeline = letter.label.from / self.network.n_slots() == address / self.network.n_slots();
        let Some(block) = self.blocks.get_mut(&address).filter(|_| is_same_pipeline) else {
            return Err(Malformed::new("it speaks to a block that is not here"));
        };
        let mut posted = BlockOutbox::default();
        let result = block.on_letter(self.now, letter, &mut posted);
        self.post(address, posted, out);
        result
    }

    fn on_done(&mut self, done: Done, took: Duration, out: &mut Outbox) {
        let (id, part) = match done {
            Done::Part { id, part } => (id, part),
            Done::Failed { problem } => return out.failure = Some(problem),
            _ => return,
        };
        // What was begun in another view is not wanted any more.
        let Some((_, address, key)) = self.running.take_if(|(running, ..)| *running == id) else { return };
        let Some(block) = self.blocks.get_mut(&address) else { return };
        let mut posted = BlockOutbox::default();
        if let Err(problem) = block.on_done(self.now, key, (part, took), &mut posted) {
            let round = block.replica.place().standing.round;
            out.failure = Some(format!(
                "{problem} in round {round}; lower optimizer.lr, or add schedule.warmup, and go on from the last good \
                 checkpoint"
            ));
        }
        self.post(address, posted, out);
    }

    /// Hands all blocks an input of the host's.
    fn feed_all(&mut self, input: &dyn Fn() -> Input, out: &mut Outbox) {
        for address in self.blocks.keys().copied().collect::<Vec<_>>() {
            let mut posted = BlockOutbox::default();
            let block = self.blocks.get_mut(&address).expect("it is there");
            block.feed(self.now, input(), &mut posted).expect("what the host says is not malformed");
            self.post(address, posted, out);
        }
    }

    /// All is agreed: the blocks begin.
    pub(super) fn start_blocks(&mut self, out: &mut Outbox) {
        let n_pipelines = self.holders.len() / self.network.n_slots();
        self.running = None;
        self.local.clear();
        for address in self.blocks.keys().copied().collect::<Vec<_>>() {
            let mut posted = BlockOutbox::default();
            let block = self.blocks.get_mut(&address).expect("it is there");
            if let Some(uplink) = self.uplink {
                block.feed(self.now, Input::Uplink(uplink), &mut posted).expect("what the host says is not malformed");
            }
            block.start(self.now, self.view.number, n_pipelines, &mut posted);
            self.post(address, posted, out);
        }
        self.release_held(out);
    }

    /// Takes the post between its own blocks, has something computed, marks what is to be marked, until there is no more.
    fn go_on(&mut self, out: &mut Outbox) {
        if !matches!(self.agreement, Agreement::Reached) {
            return self.enter(Phase::Agreeing);
        }
        loop {
            while let Some(letter) = self.local.pop_front() {
                self.on_letter(letter, out).expect("what this peer itself says is not malformed");
            }
            self.compute(out);
            if self.local.is_empty() {
                break;
            }
        }
        self.mark_blocks(out);
        self.finish_if_done(out);
        let phase = self.blocks.values().next().map(|block| block.replica.status().phase);
        self.enter(match phase {
            _ if self.is_finished => Phase::Finished,
            Some(Phase::Finished) | None => Phase::Testing,
            Some(phase) => phase,
        });
    }

    fn enter(&mut self, phase: Phase) {
        if self.phase != phase {
            (self.phase, self.phase_began) = (phase, self.now);
        }
    }

    /// Has the most urgent pass of all blocks computed, if nothing is.
    fn compute(&mut self, out: &mut Outbox) {
        if self.running.is_some() {
            return;
        }
        let mut best: Option<(Urgency, usize, Key)> = None;
        for address in self.blocks.keys().copied().collect::<Vec<_>>() {
            let mut posted = BlockOutbox::default();
            let block = self.blocks.get_mut(&address).expect("it is there");
            let mut found = block.most_urgent(&mut posted);
            if found.is_none() {
                // A pass may have ended without anything computed, and others may follow.
                block.go_on(self.now, &mut posted);
                found = block.most_urgent(&mut posted);
            }
            if let Some((urgency, key)) = found
                && best.is_none_or(|(most, ..)| urgency < most)
            {
                best = Some((urgency, address, key));
            }
            self.post(address, posted, out);
        }
        let Some((_, address, key)) = best else { return };
        self.n_works += 1;
        let id = self.n_works;
        let (work, values) = self.blocks.get_mut(&address).expect("it was just found").begin(key);
        self.running = Some((id, address, key));
        out.work.push(Work { id, values, what: What::Part(work) });
    }

    fn hold_letter(&mut self, from: PeerId, letter: Letter) -> Result<(), Malformed> {
        let Letter { label, round, body } = letter;
        self.hold(from, Frame::in_round(Kind::Layers, self.view.number, round, label.to_part(), body))
    }

    /// Keeps a frame until the members have agreed.
    fn hold(&mut self, from: PeerId, frame: Frame) -> Result<(), Malformed> {
        self.held.keep(from, frame, HELD_BYTES)
    }

    /// Looks again at what came before its time.
    pub(super) fn release_held(&mut self, out: &mut Outbox) {
        for (from, frame) in self.held.release() {
            if let Err(malformed) = self.on_frame(from, frame, out) {
                out.refused.push((from, malformed));
            }
        }
    }

    /// The blocks are given up; how far they were is remembered.
    pub(super) fn drop_blocks(&mut self) {
        self.place = self.place().clone();
        self.blocks.clear();
    }
}
