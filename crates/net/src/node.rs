//! The node: one peer of a swarm on a real network. It does what the pure core asks for: sends, computes, wakes, tells.
//!
//! All of it runs on one thread but the computing. Whatever happens is one event of [`Node::run`]'s loop; nothing in the loop
//! waits.

mod access;
mod answering;
mod linking;
mod telemetry;
mod waking;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::wire::{Frame, Kind};
use nettorrent_swarm::{Input, Outbox, Peer, PeerId, Setup, TimerToken};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::address::Address;
use crate::churn::Churn;
use crate::compute::{Compute, Finding};
use crate::contacts::{Contacts, Dialled};
use crate::endpoint::{Arrival, Endpoint};
use crate::idleness::Idleness;
use crate::inbox::{self, Inbox, InboxSender};
use crate::machine::Machine;
use crate::membership::{self, Member, Membership, Note};
use crate::meters::Meters;
use crate::report::{Command, Ending, Report};
use crate::route::Route;
use crate::service::JobPackage;
use crate::telemetry::Telemetry;
use crate::ticket::Ticket;
use crate::timers::Timers;
use crate::visitors::Visitors;

/// What a node needs to know besides its peer.
pub struct NodeSettings {
    /// The job, for joiners.
    pub package: JobPackage,
    /// When a silent peer is given up, and how many must be there at the beginning.
    pub membership: membership::Config,
    /// The address at which others reach this node.
    pub address: Address,
    /// Threads that share a batch.
    pub threads: usize,
    /// What it computes on.
    pub machine: Machine,
    /// What the machine is called.
    pub host: String,
    /// Whether to find out for whom the peer waits.
    pub measures_waits: bool,
}

/// How much may wait to be looked at; when more comes, links stop reading.
const INBOX_BYTES: usize = 64 << 20;

/// How many deadlines a joiner tries to reach a member.
const JOIN_DEADLINES: u32 = 3;

/// What is said to whoever joins when nobody is there any more.
const NOBODY_LEFT: &str =
    "no member of the swarm can be reached any more: the run may be over; look where it was started";

/// Who is told what a node reports, with its peer.
pub type Tell<'a> = &'a mut dyn FnMut(Report<'_>, &dyn Peer);

/// One peer of a swarm on a real network.
pub struct Node {
    settings: NodeSettings,
    setup: Arc<Setup>,
    began: Instant,
    peer: Box<dyn Peer>,
    out: Outbox,
    /// Why the peer cannot go on.
    failure: Option<String>,
    membership: Membership,
    member_out: membership::Outbox,
    endpoint: Endpoint,
    arrivals: mpsc::Receiver<Arrival>,
    inbox_sender: InboxSender,
    inbox: Inbox,
    contacts: Contacts,
    dials: mpsc::UnboundedReceiver<Dialled>,
    visitors: Visitors,
    compute: Compute,
    findings: mpsc::UnboundedReceiver<Vec<Finding>>,
    timers: Timers<TimerToken>,
    /// By when a joiner must have a link with a member; nobody waits for ever to be let into what is over.
    joins_by: Option<Duration>,
    /// Whether it joined and has not agreed with any member yet, so that it has nothing of what they learnt.
    is_newcomer: bool,
    meters: Meters,
    idleness: Idleness,
    /// Since when the host has been writing a block that the peer had gathered.
    writes_since: Option<Duration>,
    churn: Churn,
    telemetry: Telemetry,
    /// The ticket that was told last.
    ticket: Option<Ticket>,
    /// By which ways links were said to go.
    routes: BTreeMap<PeerId, Route>,
}

impl Node {
    /// A node that has not begun; who comes to its endpoint is among the arrivals.
    pub fn new(
        (endpoint, arrivals): (Endpoint, mpsc::Receiver<Arrival>),
        setup: Arc<Setup>,
        peer: Box<dyn Peer>,
        settings: NodeSettings,
    ) -> std::io::Result<Self> {
        let (sender, findings) = mpsc::unbounded_channel();
        let worker = setup.training().task.clone().worker(settings.threads).map_err(std::io::Error::other)?;
        let compute = Compute::start(worker, settings.machine.clone(), sender)?;
        let id = endpoint.identity().peer;
        let me = Member { id, generation: 0, address: settings.address.clone() };
        let (inbox_sender, inbox) = inbox::inbox(INBOX_BYTES);
        let (dialled, dials) = mpsc::unbounded_channel();
        Ok(Self {
            setup,
            began: Instant::now(),
            peer,
            out: Outbox::default(),
            failure: None,
            membership: Membership::new(me, &settings.membership, id.0),
            member_out: membership::Outbox::default(),
            contacts: Contacts::new(endpoint.clone(), dialled),
            dials,
            endpoint,
            arrivals,
            inbox_sender,
            inbox,
            visitors: Visitors::default(),
            compute,
            findings,
            timers: Timers::new(),
            joins_by: None,
            is_newcomer: false,
            meters: Meters::new(settings.measures_waits),
            idleness: Idleness::default(),
            writes_since: None,
            churn: Churn::default(),
            telemetry: Telemetry::default(),
            ticket: None,
            routes: BTreeMap::new(),
            settings,
        })
    }

    /// Trains with the others until all is done, or until told to leave. `report` sees the peer after each event that is
    /// worth telling; what comes by `telemetry` is passed on to the first member of the view, if that is another.
    pub fn run<'a>(
        &'a mut self,
        introducers: Vec<Member>,
        commands: mpsc::Receiver<Command>,
        telemetry: mpsc::UnboundedReceiver<Bytes>,
        report: Tell<'a>,
    ) -> Pin<Box<dyn Future<Output = Ending> + 'a>> {
        // In a box, it is compiled here, once, and not again wherever somebody waits for it.
        Box::pin(self.take_part(introducers, commands, telemetry, report))
    }

    async fn take_part(
        &mut self,
        introducers: Vec<Member>,
        mut commands: mpsc::Receiver<Command>,
        mut telemetry: mpsc::UnboundedReceiver<Bytes>,
        report: Tell<'_>,
    ) -> Ending {
        self.begin(introducers, report);
        let ending = self.go_on(&mut commands, &mut telemetry, report).await;
        self.end(&ending, telemetry, report).await;
        ending
    }

    /// Asks to be let in by the members it knows of.
    fn begin(&mut self, introducers: Vec<Member>, report: Tell<'_>) {
        // Those who begin together wait for each other for as long as it takes.
        if !introducers.is_empty() && self.settings.membership.wait_for <= 1 {
            self.joins_by = Some(JOIN_DEADLINES * self.settings.membership.deadline);
            self.is_newcomer = true;
            self.churn.join(self.now());
        }
        self.on_members(membership::Input::Join(introducers), report);
    }

    /// Does what comes, one thing after the other, until there is an end.
    async fn go_on(
        &mut self,
        commands: &mut mpsc::Receiver<Command>,
        telemetry: &mut mpsc::UnboundedReceiver<Bytes>,
        report: Tell<'_>,
    ) -> Ending {
        let mut is_leaving = false;
        loop {
            if let Some(failure) = self.failure.take() {
                return Ending::Failed(failure);
            }
            if self.peer.is_finished() {
                return Ending::Finished;
            }
            if is_leaving && self.peer.is_settled() {
                return Ending::Left;
            }
            let wake_at = self.next_wake();
            tokio::select! {
                biased;
                Some(command) = commands.recv() => match command {
                    Command::BlockWritten { is_written } => {
                        self.writes_since = None;
                        self.on_input(Input::BlockWritten { is_written }, report);
                    }
                    Command::Leave => {
                        is_leaving = true;
                        self.on_input(Input::Stop, report);
                    }
                },
                Some(findings) = self.findings.recv() => {
                    for (done, took) in findings {
                        self.on_input(Input::Done { done, took }, report);
                    }
                }
                Some(event) = self.inbox.next() => self.on_link_events(event, report),
                Some(bytes) = telemetry.recv() => self.send_telemetry(bytes),
                Some(dialled) = self.dials.recv() => self.on_dialled(dialled, report),
                Some(arrival) = self.arrivals.recv() => self.on_arrival(arrival, report),
                () = sleep_until(wake_at) => self.on_wake(report),
            }
        }
    }

    /// Tells others the rest and goodbye.
    async fn end(&mut self, ending: &Ending, mut telemetry: mpsc::UnboundedReceiver<Bytes>, report: Tell<'_>) {
        for event in self.churn.end() {
            self.tell_event(event, report);
        }
        report(Report::Ending, &*self.peer);
        while let Ok(bytes) = telemetry.try_recv() {
            self.send_telemetry(bytes);
        }
        self.on_members(membership::Input::Leave, report);
        if *ending == Ending::Finished {
            self.hear_others_out(report).await;
        }
        let has_routes = self.contacts.routes().any(|(_, route)| matches!(route, Route::Direct | Route::Relayed));
        self.contacts.close().await;
        if has_routes {
            self.visitors = Visitors::default();
            self.endpoint.settle().await;
        }
        self.tell_of_folder(report);
    }

    /// The peer, for who wants to keep what it learnt.
    pub fn peer(&self) -> &dyn Peer {
        &*self.peer
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn tell_of_folder(&self, report: Tell<'_>) {
        self.endpoint.folder_news().iter().for_each(|news| report(Report::Folder(news), &*self.peer));
    }

    /// Tells of links that do not go over TCP, by which way they go, and when that changes.
    fn tell_of_routes(&mut self, report: Tell<'_>) {
        let mut rerouted = Vec::new();
        for (peer, route) in self.contacts.routes() {
            let before = self.routes.insert(peer, route);
            if before == Some(route) {
                continue;
            }
            rerouted.extend(before.map(|_| peer));
            if matches!(route, Route::Direct | Route::Relayed) {
                report(Report::Route(format!("{peer} is linked by another way than TCP: {route}")), &*self.peer);
            }
        }
        for peer in rerouted {
            self.on_members(membership::Input::Rerouted(peer), report);
        }
    }

    /// Hands the peer an input and does what it asks for.
    fn on_input(&mut self, input: Input, report: Tell<'_>) {
        let now = self.now();
        let from = if let Input::Frame { from, .. } = &input { Some(*from) } else { None };
        let handling = self.meters.begin(now, &input);
        let result = self.peer.handle(now, input, &mut self.out);
        self.meters.end(&handling);
        if let (Err(problem), Some(from)) = (result, from) {
            self.out.refused.push((from, problem));
        }
        self.empty_outbox(report);
        self.meters.go_on(&*self.peer);
        // Whoever sends nonsense is cut off: it costs the sender, not us.
        for (from, problem) in std::mem::take(&mut self.out.refused) {
            report(Report::Refused(format!("{from} was cut off: {problem}")), &*self.peer);
            self.contacts.cut(from);
            self.on_members(membership::Input::CutOff(from), report);
        }
    }

    fn empty_outbox(&mut self, report: Tell<'_>) {
        let now = self.now();
        for (to, frame) in self.out.frames.drain(..).filter(|(_, frame)| self.settings.machine.sends(frame.head.view)) {
            self.contacts.send(to, self.membership.address_of(to), frame);
        }
        self.out.work.drain(..).for_each(|work| self.compute.order(work));
        self.out.timers.drain(..).for_each(|(after, token)| self.timers.set(now + after, token));
        let mut told = Vec::new();
        for mut record in self.out.records.drain(..) {
            self.is_newcomer &= !matches!(&record.event, Event::View { members, .. } if members.len() > 1);
            let waits = self.meters.complete(now, &mut record, self.contacts.outflows());
            report(Report::Record { record: &record, waits: &waits }, &*self.peer);
            let news = self.churn.on_event(now, &record.event);
            told.extend(news);
        }
        told.into_iter().for_each(|event| self.tell_event(event, report));
        for block in self.out.saved.drain(..) {
            self.writes_since = Some(now);
            report(Report::Saved(&block), &*self.peer);
        }
        self.failure = self.failure.take().or(self.out.failure.take());
    }

    /// Tells what this node has found out itself.
    fn tell_event(&self, event: Event, report: Tell<'_>) {
        let record = Record { peer: self.endpoint.identity().peer, at_s: self.now().as_secs_f64(), event };
        report(Report::Record { record: &record, waits: &[] }, &*self.peer);
    }

    /// Hands the membership an input and does what it asks for.
    fn on_members(&mut self, input: membership::Input, report: Tell<'_>) {
        let now = self.now();
        let from = if let membership::Input::Packet { from, .. } = &input { Some(*from) } else { None };
        if let (Err(problem), Some(from)) = (self.membership.handle(now, input, &mut self.member_out), from) {
            report(Report::Refused(format!("{from} was cut off: {problem}")), &*self.peer);
            self.contacts.cut(from);
        }
        let membership::Outbox { packets, probes, .. } = &mut self.member_out;
        for (kind, packets) in [(Kind::Membership, packets), (Kind::Probe, probes)] {
            for (member, bytes) in packets.drain(..) {
                self.contacts.send(member.id, Some(&member.address), Frame::new(kind, bytes));
            }
        }
        self.member_out.silent.drain(..).for_each(|peer| self.contacts.cut(peer));
        for note in self.member_out.notes.drain(..) {
            if note == Note::OutOfNumbers {
                self.failure = Some(note.to_string());
            }
            self.churn.on_note(&note);
            report(Report::Note(&note), &*self.peer);
        }
        if let Some(view) = self.member_out.view.take() {
            if self.is_newcomer && view.len() == 1 {
                // It would train all of it once more, by itself and from the beginning.
                self.failure.get_or_insert_with(|| NOBODY_LEFT.to_owned());
                return;
            }
            self.churn.on_view(now, self.peer.view(), &view);
            let lost = self.peer.view().members.iter().filter(|&&peer| view.rank(peer).is_none());
            lost.for_each(|&peer| self.contacts.cut(peer));
            self.on_input(Input::RoundTrips(self.membership.round_trips()), report);
            self.on_input(Input::View(view), report);
        }
    }
}
