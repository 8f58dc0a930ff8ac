//! The sum of a gradient over batch shards: each adds up one chunk of it, in the order of the shards, and tells the others.

use nettorrent_engine::partition::block;
use nettorrent_swarm::Malformed;

use crate::message::{Incoming, Label, Message, Subject, messages};

/// A sum that is going on.
#[derive(Debug)]
pub(crate) struct GradientSum {
    shard: usize,
    n_shards: usize,
    len: usize,
    /// What this shard computed, once it has; in the end, the sum.
    own: Option<Vec<f32>>,
    /// Others' parts of this shard's chunk, and their sums of theirs, by shard.
    parts: Vec<Incoming>,
    sums: Vec<Incoming>,
    is_told: bool,
}

impl GradientSum {
    pub(crate) fn new(shard: usize, n_shards: usize, len: usize) -> Self {
        let chunk = |shard| block(shard, n_shards, len).len();
        let incoming = |of: &dyn Fn(usize) -> usize| {
            (0..n_shards).map(|other| Incoming::new(if other == shard { 0 } else { of(other) })).collect()
        };
        Self {
            shard,
            n_shards,
            len,
            own: None,
            parts: incoming(&|_| chunk(shard)),
            sums: incoming(&|other| chunk(other)),
            is_told: false,
        }
    }

    /// This shard's own gradient is there. It goes to the others chunk by chunk.
    pub(crate) fn put(&mut self, own: Vec<f32>, ways: &Ways, out: &mut Vec<Message>) {
        for shard in (0..self.n_shards).filter(|&shard| shard != self.shard) {
            let chunk = &own[block(shard, self.n_shards, self.len)];
            out.extend(messages(ways.label(Subject::GradientPart, shard), ways.round, chunk));
        }
        self.own = Some(own);
        self.go_on(ways, out);
    }

    /// Another shard sent a piece.
    pub(crate) fn take(
        &mut self,
        (label, shard): (Label, usize),
        body: &[u8],
        ways: &Ways,
        out: &mut Vec<Message>,
    ) -> Result<(), Malformed> {
        let incoming = match label.subject {
            Subject::GradientPart => &mut self.parts,
            _ => &mut self.sums,
        };
        incoming[shard].take(label.piece, body)?;
        self.go_on(ways, out);
        Ok(())
    }

    fn go_on(&mut self, ways: &Ways, out: &mut Vec<Message>) {
        let Some(own) = &mut self.own else { return };
        if !self.is_told && self.parts.iter().all(Incoming::is_complete) {
            self.is_told = true;
            let chunk = &mut own[block(self.shard, self.n_shards, self.len)];
            let mine = chunk.to_vec();
            chunk.fill(0.0);
            for (shard, part) in self.parts.iter().enumerate() {
                let part = if shard == self.shard { &mine } else { part.numbers() };
                chunk.iter_mut().zip(part).for_each(|(sum, number)| *sum += number);
            }
            for shard in (0..self.n_shards).filter(|&shard| shard != self.shard) {
                out.extend(messages(ways.label(Subject::GradientSum, shard), ways.round, chunk));
            }
        }
    }

    /// The sum, once it is there.
    pub(crate) fn take_sum(&mut self) -> Option<Vec<f32>> {
        if !self.is_told || !self.sums.iter().all(Incoming::is_complete) {
            return None;
        }
        let mut sum = self.own.take()?;
        for (shard, incoming) in self.sums.iter().enumerate().filter(|(shard, _)| *shard != self.shard) {
            sum[block(shard, self.n_shards, self.len)].copy_from_slice(incoming.numbers());
        }
        Some(sum)
    }

    /// The shards of which something is missing.
    pub(crate) fn waits_for(&self) -> impl Iterator<Item = usize> {
        (0..self.n_shards).filter(|&shard| !self.parts[shard].is_complete() || !self.sums[shard].is_complete())
    }
}

/// How messages to the other shards are addressed.
pub(crate) struct Ways {
    pub label: Label,
    pub round: u32,
    /// By shard, the slot.
    pub slots: Vec<usize>,
}

impl Ways {
    fn label(&self, subject: Subject, shard: usize) -> Label {
        Label { subject, to: self.slots[shard], ..self.label }
    }
}

#[cfg(test)]
mod tests {
    use super::{GradientSum, Ways};
    use crate::message::{Label, Message, Subject};

    #[test]
    fn all_shards_get_the_same_sum_in_whatever_order() {
        for len in [1, 2, 5, 200_000] {
            for reversed in [false, true] {
                let mut shards: Vec<GradientSum> = (0..3).map(|shard| GradientSum::new(shard, 3, len)).collect();
                let ways = |shard: usize| Ways {
                    label: Label { from: shard, ..Label::of_peer(Subject::GradientPart) },
                    round: 0,
                    slots: vec![0, 1, 2],
                };
                let mut messages: Vec<Message> = Vec::new();
                for (shard, sum) in shards.iter_mut().enumerate() {
                    sum.put((0..len).map(|k| (k + shard) as f32).collect(), &ways(shard), &mut messages);
                }
                while !messages.is_empty() {
                    // Links may be of any speed, but each keeps its order.
                    let last = messages.last().unwrap().label.from;
                    let from = if reversed { last } else { messages[0].label.from };
                    let at = messages.iter().position(|message| message.label.from == from).unwrap();
                    let Message { label, body, .. } = messages.remove(at);
                    let way = ways(label.to);
                    shards[label.to].take((label, label.from), &body, &way, &mut messages).unwrap();
                }
                let expected: Vec<f32> = (0..len).map(|k| (3 * k + 3) as f32).collect();
                assert!(shards.iter_mut().all(|shard| shard.take_sum().as_deref() == Some(&expected)));
            }
        }
    }
}
