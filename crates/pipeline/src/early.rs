//! Messages for passes that have not begun: kept until then, and no more of them from one block than honest ones send.

use std::collections::BTreeMap;

use nettorrent_swarm::Malformed;

use crate::message::Message;

/// What is kept from one block. Blocks of a pipeline are never far apart.
const MOST_BYTES: usize = 256 << 20;

/// Whose block says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// Another peer's.
    Another,
    /// One of this peer's own.
    Oneself,
}

/// What is kept, and how much of it came from which block.
#[derive(Default)]
pub(crate) struct EarlyMessages {
    messages: Vec<Message>,
    n_bytes: BTreeMap<usize, usize>,
}

impl EarlyMessages {
    /// Keeps a message. From another peer's block there is room for so much and no more, whatever others send.
    pub(crate) fn keep(&mut self, message: Message, sender: Sender) -> Result<(), Malformed> {
        let n_bytes = self.n_bytes.entry(message.label.from).or_default();
        if sender == Sender::Another && *n_bytes + cost(&message) > MOST_BYTES {
            return Err(Malformed::new("it is too far ahead: more came from it than can be kept"));
        }
        *n_bytes += cost(&message);
        self.messages.push(message);
        Ok(())
    }

    /// Hands out those whose pass has begun, in the order in which they came.
    pub(crate) fn release(&mut self, has_begun: impl Fn(&Message) -> bool) -> Vec<Message> {
        if !self.messages.iter().any(&has_begun) {
            return Vec::new();
        }
        let (begun, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.messages).into_iter().partition(has_begun);
        self.messages = rest;
        for message in &begun {
            if let Some(n_bytes) = self.n_bytes.get_mut(&message.label.from) {
                *n_bytes -= cost(message);
            }
        }
        begun
    }
}

/// How much memory a message takes.
fn cost(message: &Message) -> usize {
    size_of::<Message>() + message.body.len()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{EarlyMessages, Sender};
    use crate::message::{Label, Message, Purpose, Subject};

    /// Outputs of block 1 for a pass of block 0.
    fn message(round: u32, body: &Bytes) -> Message {
        let label = Label { subject: Subject::Up, purpose: Purpose::Train, from: 1, to: 0, piece: 0 };
        Message { label, round, body: body.clone() }
    }

    /// How many of at most twenty messages are kept.
    fn fill(early: &mut EarlyMessages, sender: Sender, body: &Bytes) -> usize {
        (0..20).take_while(|&round| early.keep(message(round, body), sender).is_ok()).count()
    }

    /// The messages share it, so it costs the test no more than one of them.
    fn large() -> Bytes {
        Bytes::from(vec![0; 32 << 20])
    }

    #[test]
    fn blocks_of_this_peer_are_never_too_far_ahead() {
        assert_eq!(fill(&mut EarlyMessages::default(), Sender::Another, &large()), 7);
        assert_eq!(fill(&mut EarlyMessages::default(), Sender::Oneself, &large()), 20);
    }

    #[test]
    fn what_is_refused_or_handed_out_takes_no_room() {
        let mut early = EarlyMessages::default();
        assert_eq!(fill(&mut early, Sender::Another, &large()), 7);
        assert!(early.keep(message(7, &large()), Sender::Another).is_err());
        assert!(early.keep(message(7, &Bytes::new()), Sender::Another).is_ok(), "there is room for a small one");
        assert_eq!(early.release(|message| message.round < 3).len(), 3);
        assert_eq!(fill(&mut early, Sender::Another, &large()), 3);
    }
}
