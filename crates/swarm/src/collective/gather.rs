//! The gathering: every peer sends its vector to all others, and each makes one of them all by itself.
//!
//! So a rule can be applied that has to see whose numbers are which, and nobody has to be trusted to apply it: who sums for
//! others can say what it likes. One step, in which each peer sends and receives (N−1)M. All peers apply the same rule to the
//! same bytes in the order of ranks, so they end with the same bits, unless somebody tells one this and the other that.

use super::bucket::{Buckets, vector_len};
use super::interface::Collective;
use super::segments::{Label, segments};
use super::shards::encode;
use crate::codec::Codec;
use crate::malformed::Malformed;
use crate::strategy::{Contribution, Cost, CostQuestion, Ctx, Message, Payload, Rule, Trained};

/// An exchange in which everybody sees all contributions.
pub(crate) struct Gather {
    codec: Codec,
    rule: Rule,
    payload: Payload,
    rank: usize,
    n_peers: usize,
    /// This peer's numbers as the others read them, bucket by bucket.
    own: Vec<Option<Vec<f32>>>,
    /// What has come from the others, by rank; none before the first of it.
    others: Vec<Option<Buckets>>,
    /// What the rule made of them, once all are there.
    result: Option<Vec<Vec<f32>>>,
    /// What rounding has taken away of this peer's contributions, if that is to be made good: see [`super::Shards`].
    residue: Option<Vec<Vec<f32>>>,
}

/// The only step of the exchange.
const NUMBERS: usize = 0;

impl Gather {
    /// An exchange that nothing has come for. With weights, the rule is told what the round began with.
    pub(crate) fn new(codec: Codec, rule: Rule, payload: Payload) -> Self {
        let (own, others) = (Vec::new(), Vec::new());
        Self { codec, rule, payload, rank: 0, n_peers: 1, own, others, result: None, residue: None }
    }

    /// Adds what rounding takes away in one exchange to the numbers of the next, so that over time nothing is lost.
    #[must_use]
    pub(crate) fn with_feedback(self) -> Self {
        Self { residue: Some(Vec::new()), ..self }
    }

    fn has_come(&self, rank: usize) -> bool {
        if rank == self.rank {
            return self.own.iter().all(Option::is_some);
        }
        self.others[rank].as_ref().is_some_and(Buckets::is_complete)
    }

    fn aggregate_if_complete(&mut self, ctx: &Ctx<'_>) {
        if self.result.is_some() || !(0..self.n_peers).all(|rank| self.has_come(rank)) {
            return;
        }
        let parts = |rank: usize| -> Vec<&[f32]> {
            match &self.others[rank] {
                None => self.own.iter().flatten().map(Vec::as_slice).collect(),
                Some(buckets) => buckets.iter().filter_map(|bucket| bucket.numbers.as_deref()).collect(),
            }
        };
        let contribution = |rank: usize| Contribution { trained: Trained::default(), parts: parts(rank) };
        let contributions: Vec<Contribution<'_>> = ctx.voters().into_iter().map(contribution).collect();
        let n_buckets = ctx.buckets().len();
        let origin: Option<Vec<Vec<f32>>> = (self.payload == Payload::Weights && self.rule.measures_steps())
            .then(|| (0..n_buckets).map(|bucket| ctx.held_at_start(bucket).into_owned()).collect());
        let mut result: Vec<Vec<f32>> = ctx.buckets().iter().map(|range| vec![0.0; range.len()]).collect();
        self.rule.aggregate(&contributions, origin.as_deref(), &mut result);
        self.result = Some(result);
    }
}

impl Collective for Gather {
    fn begin(&mut self, ctx: &mut Ctx<'_>) {
        (self.rank, self.n_peers) = (ctx.rank(), ctx.n_peers());
        self.own = vec![None; ctx.buckets().len()];
        self.others = (0..self.n_peers).map(|_| None).collect();
        self.result = None;
        if let Some(residue) = self.residue.as_mut().filter(|residue| residue.is_empty()) {
            *residue = ctx.buckets().iter().map(|range| vec![0.0; range.len()]).collect();
        }
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, mut numbers: Vec<f32>) {
        if self.n_peers > 1 {
            for (k, place) in segments(0..numbers.len()).enumerate() {
                let residue = self.residue.as_mut().map(|residue| &mut residue[bucket][place.clone()]);
                let body = encode(self.codec, &mut numbers[place.clone()], residue);
                // What the others will read counts here too, however numbers travel.
                self.codec.decode(&body, &mut numbers[place]).expect("it was just encoded");
                let part = Label { bucket, step: NUMBERS, segment: k }.to_part();
                let others = (0..self.n_peers).filter(|&to| to != self.rank);
                others.for_each(|to| ctx.send(to, part, body.clone()));
            }
        }
        self.own[bucket] = Some(numbers);
        self.aggregate_if_complete(ctx);
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        if label.step != NUMBERS || from == self.rank || self.result.is_some() {
            return Err(Malformed::new("there is no such step in this exchange"));
        }
        let buckets = self.others[from].get_or_insert_with(|| Buckets::incoming(ctx));
        buckets.take_incoming(self.codec, label, message.body)?;
        self.aggregate_if_complete(ctx);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.result.is_some()
    }

    fn take_result(&mut self) -> Vec<Vec<f32>> {
        // What comes now is refused as what comes when there is a result.
        self.result.replace(Vec::new()).expect("the exchange is complete")
    }

    fn waits_for(&self) -> Vec<usize> {
        if self.result.is_some() || self.own.is_empty() {
            return Vec::new();
        }
        (0..self.n_peers).filter(|&rank| rank != self.rank && !self.has_come(rank)).collect()
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let others = question.n_peers as u64 - 1;
        let most = others * vector_len(self.codec, question);
        Cost {
            total: question.n_peers as u64 * most,
            most_sent: most,
            most_received: most,
            n_steps: others.min(1) as u32,
        }
    }
}
