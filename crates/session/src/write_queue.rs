//! What waits for the disk. Of whole states only the newest does, so that a slow disk takes no memory.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nettorrent_net::ticket::Ticket;
use nettorrent_swarm::{SavedBlock, State};
use tokio::sync::Notify;

/// What is to be written.
pub(crate) enum Order {
    /// A whole state.
    State(Box<State>),
    /// A block of one.
    Block(SavedBlock),
    /// The swarm's present ticket.
    Ticket(Ticket),
    /// Nothing: training goes on from an earlier step, and what was written of later ones is void.
    SetAside {
        /// Which.
        step: u64,
    },
    /// Nothing: somebody waits until what was ordered before is done.
    Wait(Sender<()>),
}

/// Orders, first come, first served.
#[derive(Default)]
pub(crate) struct WriteQueue {
    waiting: Mutex<Waiting>,
    has_changed: Notify,
}

#[derive(Default)]
struct Waiting {
    orders: VecDeque<Order>,
    is_closed: bool,
}

impl WriteQueue {
    /// Adds an order. A state or a ticket takes the place of one that waits: if it is a state, that one is returned.
    pub(crate) fn push(&self, order: Order) -> Option<Box<State>> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return None;
        }
        let is_older = |other: &Order| {
            matches!((other, &order), (Order::State(_), Order::State(_)) | (Order::Ticket(_), Order::Ticket(_)))
        };
        let older = waiting.orders.iter().position(is_older);
        let older = older.and_then(|k| waiting.orders.remove(k));
        waiting.orders.push_back(order);
        drop(waiting);
        self.has_changed.notify_one();
        if let Some(Order::State(older)) = older { Some(older) } else { None }
    }

    /// The next order, as soon as there is one; none when it is closed and empty. Only one may ask.
    pub(crate) async fn pop(&self) -> Option<Order> {
        loop {
            {
                let mut waiting = self.lock();
                if !waiting.orders.is_empty() || waiting.is_closed {
                    return waiting.orders.pop_front();
                }
            }
            self.has_changed.notified().await;
        }
    }

    /// Nothing more is to come.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.has_changed.notify_one();
    }

    /// Nobody is left who would do it: who waits is let go.
    pub(crate) fn abandon(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        waiting.orders.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is locked.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use nettorrent_engine::optimizer::{Optimizer, OptimizerSpec};
    use nettorrent_swarm::{Place, State};

    use super::{Order, WriteQueue};

    fn state(step: u64) -> Order {
        let place = Place { step, ..Place::default() };
        let optimizer = Optimizer::new(OptimizerSpec::default(), 0);
        Order::State(Box::new(State::new(Arc::default(), optimizer, place, Vec::new())))
    }

    /// A number for each order: a state's step, and that of others after a hundred.
    fn name(order: &Order) -> u64 {
        match order {
            Order::State(state) => state.place.step,
            Order::SetAside { step } => 100 + step,
            Order::Block(_) | Order::Ticket(_) | Order::Wait(_) => u64::MAX,
        }
    }

    #[tokio::test]
    async fn of_the_states_that_wait_only_the_newest_is_kept() {
        let queue = WriteQueue::default();
        assert!(queue.push(state(1)).is_none());
        assert!(queue.push(Order::SetAside { step: 0 }).is_none());
        for step in 2..50 {
            let left_out = queue.push(state(step)).expect("the one before");
            assert_eq!(left_out.place.step, step - 1);
        }
        queue.push(Order::SetAside { step: 7 });
        queue.close();
        assert!(queue.push(state(99)).is_none(), "it is closed");
        let mut orders = Vec::new();
        while let Some(order) = queue.pop().await {
            orders.push(name(&order));
        }
        assert_eq!(orders, [100, 49, 107]);
    }

    #[tokio::test]
    async fn who_waits_for_a_writer_that_is_gone_is_let_go() {
        let queue = WriteQueue::default();
        let (done, written) = channel();
        queue.push(Order::Wait(done));
        queue.abandon();
        assert!(written.recv().is_err());
        let (done, written) = channel();
        queue.push(Order::Wait(done));
        assert!(written.recv().is_err());
        assert!(queue.pop().await.is_none());
    }
}
