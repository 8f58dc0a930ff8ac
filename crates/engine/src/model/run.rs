//! Running a network over a batch: up through its steps, and down again for the gradient.

use std::sync::Mutex;

use super::handover::{Handover, ThreadGradient};
use super::layer::Mode;
use super::loss::{self, Score};
use super::network::Network;
use super::walk::{Course, Walk};
use super::workspace::Workspace;
use crate::data::Batch;

impl Network {
    /// The gradient of the batch's mean loss by all parameters, and how well the network did before it.
    ///
    /// `gradient` is as long as `values`; behind the trained numbers' gradient lies how far the running statistics are to
    /// move. The same seed, batch and number of threads give the same bits.
    pub fn gradient(
        &self,
        values: &[f32],
        batch: &Batch,
        seed: u64,
        gradient: &mut [f32],
        room: &mut Workspace,
    ) -> Score {
        self.find_gradient(values, batch, seed, gradient, room, None)
    }

    /// The same gradient, bit for bit, whose buckets are handed over one by one while the rest is still computed.
    ///
    /// # Panics
    /// If the buckets are not this network's.
    pub fn gradient_in_buckets(
        &self,
        values: &[f32],
        batch: &Batch,
        seed: u64,
        gradient: &mut [f32],
        room: &mut Workspace,
        handover: Handover<'_>,
    ) -> Score {
        self.find_gradient(values, batch, seed, gradient, room, Some(handover))
    }

    fn find_gradient(
        &self,
        values: &[f32],
        batch: &Batch,
        seed: u64,
        gradient: &mut [f32],
        room: &mut Workspace,
        handover: Option<Handover<'_>>,
    ) -> Score {
        self.check(values, batch);
        assert_eq!(gradient.len(), self.n_values(), "a gradient is as long as the parameters");
        room.prepare(self, values);
        let mut others = room.take_parts(self.n_values());
        let is_whole = handover.is_none();
        let parts = ThreadGradient::of_each(self.n_params(), gradient, &mut others, handover);
        let parts: Vec<Mutex<Option<ThreadGradient<'_>>>> =
            parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        let course = self.course(values, batch, Mode::Train { seed }, room);
        room.team.run(|member| {
            // Taken out, so that a thread that panics drops it, and those who wait for its buckets wait no longer.
            let part = parts[member.rank].lock().expect("each thread has its own").take();
            let mut part = part.expect("it is taken once");
            let mut space = room.spaces[member.rank].lock().expect("each thread has its own");
            let mut walk = Walk::new(&course, member, &mut space);
            walk.up();
            let labels = &batch.labels[walk.samples.clone()];
            let score = loss::score(walk.output(), labels, self.n_classes());
            walk.turn(|output, delta| loss::gradient(output, labels, self.n_classes(), batch.len(), delta));
            walk.down(&mut part);
            space.score = score;
        });
        drop(parts);
        if is_whole {
            room.add_up(gradient, &others);
        }
        room.parts = others;
        total_score(room)
    }

    /// The network's outputs for each sample (the higher a class's number, the likelier it is), and how well it did.
    pub fn predict(&self, values: &[f32], batch: &Batch, room: &mut Workspace) -> (Vec<f32>, Score) {
        self.check(values, batch);
        room.prepare(self, values);
        let outputs = Mutex::new(vec![0.0; batch.len() * self.n_classes()]);
        let course = self.course(values, batch, Mode::Test, room);
        room.team.run(|member| {
            let mut space = room.spaces[member.rank].lock().expect("each thread has its own");
            let mut walk = Walk::new(&course, member, &mut space);
            walk.up();
            let place = walk.samples.start * self.n_classes()..walk.samples.end * self.n_classes();
            outputs.lock().expect("no thread panicked")[place].copy_from_slice(walk.output());
            let score = loss::score(walk.output(), &batch.labels[walk.samples.clone()], self.n_classes());
            space.score = score;
        });
        (outputs.into_inner().expect("no thread panicked"), total_score(room))
    }

    fn course<'a>(&'a self, values: &'a [f32], batch: &'a Batch, mode: Mode, room: &'a Workspace) -> Course<'a> {
        Course {
            network: self,
            values,
            inputs: &batch.inputs,
            n: batch.len(),
            first: 0,
            mode,
            wants_input: false,
            room,
        }
    }

    fn check(&self, values: &[f32], batch: &Batch) {
        assert_eq!(values.len(), self.n_values(), "the parameters belong to another network");
        assert_eq!(batch.inputs.len(), batch.len() * self.lens[0], "the samples have another shape");
        assert!(batch.labels.iter().all(|&label| (label as usize) < self.n_classes()), "a label names no class");
    }
}

fn total_score(room: &mut Workspace) -> Score {
    let mut total = Score::default();
    for space in &mut room.spaces {
        total += space.get_mut().expect("no thread panicked").score;
    }
    total
}
