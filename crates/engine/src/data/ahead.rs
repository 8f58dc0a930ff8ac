//! Things that will be asked for next, made while others have no use for the processor.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads that were asked so often and have not got to it have no time to spare: then nothing more is asked of them.
const MOST_WAITING: usize = 8;

/// Makes what will be asked for, on threads of its own. Whoever asks never waits for these: what is not there yet is made by the one who
/// asks. So it changes no result, as long as the same thing is made each time.
pub(crate) struct Ahead<T> {
    /// None if it cannot be made: then whoever asks will find out why.
    make: Arc<dyn Fn(usize) -> Option<T> + Send + Sync>,
    lists: Mutex<Lists<T>>,
    /// How often threads were asked to make something and have not got to it.
    n_waiting: Arc<AtomicUsize>,
    pool: OnceLock<Option<ThreadPool>>,
}

struct Lists<T> {
    /// What was made for those who ask now.
    ready: Arc<List<T>>,
    /// What is being made for those who ask next.
    coming: Arc<List<T>>,
    /// What that is to be, as long as it is not begun.
    expected: Vec<usize>,
    /// Who asks, and whether others do, too: they would take each other's things for their own, so then nothing is made ahead.
    asker: Option<ThreadId>,
    is_shared: bool,
}

/// Things by their number.
pub(crate) struct List<T> {
    /// In ascending order.
    things: Vec<(usize, OnceLock<T>)>,
    /// The next one to be made.
    next: AtomicUsize,
    is_wanted: AtomicBool,
}

impl<T> List<T> {
    fn new(mut numbers: Vec<usize>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        let things = numbers.into_iter().map(|number| (number, OnceLock::new())).collect();
        Self { things, next: AtomicUsize::new(0), is_wanted: AtomicBool::new(true) }
    }

    /// A thing, if it is there.
    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        let place = self.things.binary_search_by_key(&number, |thing| thing.0).ok()?;
        self.things[place].1.get()
    }

    /// Makes one after the other until none is left, or nobody wants them any more.
    fn make_all(&self, make: &dyn Fn(usize) -> Option<T>) {
        while self.is_wanted.load(Ordering::Relaxed)
            && let Some((number, place)) = self.things.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            if let Some(thing) = make(*number) {
                let _ = place.set(thing);
            }
        }
    }
}

impl<T: Send + Sync + 'static> Ahead<T> {
    /// Things that are made so.
    pub(crate) fn new(make: impl Fn(usize) -> Option<T> + Send + Sync + 'static) -> Self {
        let nothing = || Arc::new(List::new(Vec::new()));
        let lists = Lists { ready: nothing(), coming: nothing(), expected: Vec::new(), asker: None, is_shared: false };
        let lists = Mutex::new(lists);
        Self { make: Arc::new(make), lists, n_waiting: Arc::default(), pool: OnceLock::new() }
    }

    /// Says what will be asked for after what is asked for now. What was expected before is asked for now. It is for one thread to say
    /// so: where several do, all are forgotten.
    pub(crate) fn expect(&self, numbers: Vec<usize>) {
        let (mut lists, asker) = (self.lists(), thread::current().id());
        lists.is_shared |= *lists.asker.get_or_insert(asker) != asker;
        lists.coming.is_wanted.store(false, Ordering::Relaxed);
        lists.ready = std::mem::replace(&mut lists.coming, Arc::new(List::new(Vec::new())));
        lists.expected = if lists.is_shared { Vec::new() } else { numbers };
    }

    /// What was made of what is asked for now.
    pub(crate) fn ready(&self) -> Arc<List<T>> {
        self.lists().ready.clone()
    }

    /// Has what is expected made from now on, by at most so many threads: all that is asked for now is there.
    pub(crate) fn begin(&self, n_threads: usize) {
        let mut lists = self.lists();
        let expected = std::mem::take(&mut lists.expected);
        if expected.is_empty() {
            return;
        }
        let Some(pool) = self.pool.get_or_init(|| pool(n_threads)) else { return };
        if self.n_waiting.load(Ordering::Relaxed) >= MOST_WAITING * pool.current_num_threads() {
            return;
        }
        lists.coming = Arc::new(List::new(expected));
        for _ in 0..pool.current_num_threads() {
            self.n_waiting.fetch_add(1, Ordering::Relaxed);
            let (list, make, n_waiting) = (lists.coming.clone(), self.make.clone(), self.n_waiting.clone());
            pool.spawn(move || {
                n_waiting.fetch_sub(1, Ordering::Relaxed);
                list.make_all(&*make);
            });
        }
    }

    fn lists(&self) -> MutexGuard<'_, Lists<T>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Ahead<T> {
    fn drop(&mut self) {
        let lists = self.lists.get_mut().unwrap_or_else(PoisonError::into_inner);
        lists.coming.is_wanted.store(false, Ordering::Relaxed);
    }
}

/// Threads that give way to all others; none if there can be none.
fn pool(n_threads: usize) -> Option<ThreadPool> {
    let builder = ThreadPoolBuilder::new().num_threads(n_threads.max(1)).thread_name(|rank| format!("ahead-{rank}"));
    // Who panics over something will do so again for whoever asks for it.
    builder.start_handler(|_| give_way()).panic_handler(drop).build().ok()
}

/// Leaves most of a processor that others want to them, where the system has that for a thread. Not all of it: a thread that waits for ever
/// may hold a lock of the memory's that others wait for.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        // PRIO_PROCESS is about a thread on Linux, and 0 is this one.
        let (process, this_thread): (libc::c_long, libc::c_long) = (0, 0);
        // SAFETY: these change nothing but when this thread runs. The first tells 20 less the niceness.
        unsafe {
            let niceness = 20 - libc::syscall(libc::SYS_getpriority, process, this_thread);
            libc::syscall(libc::SYS_setpriority, process, this_thread, (niceness + 10).min(19));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::Ahead;

    impl<T: Send + Sync + 'static> Ahead<T> {
        /// Waits until all that threads have begun with is there.
        pub(crate) fn settle(&self) {
            if let Some(Some(pool)) = self.pool.get() {
                pool.broadcast(|_| ());
            }
        }
    }

    /// Makes tens; tells what it makes, and waits until it may go on if there is a gate.
    fn tens(gate: Option<Receiver<()>>) -> (Ahead<usize>, Receiver<usize>) {
        let (told, made): (Sender<usize>, _) = channel();
        let (told, gate) = (Mutex::new(told), Mutex::new(gate));
        let make = move |number: usize| {
            told.lock().unwrap().send(number).unwrap();
            if let Some(gate) = &*gate.lock().unwrap() {
                gate.recv().unwrap();
            }
            (number != 13).then_some(10 * number)
        };
        (Ahead::new(make), made)
    }

    #[test]
    fn what_is_expected_is_there_when_it_is_asked_for() {
        let (ahead, made) = tens(None);
        ahead.begin(2);
        ahead.expect(vec![5, 13, 4, 5]);
        assert!(ahead.ready().get(5).is_none() && made.try_recv().is_err(), "nothing is begun yet");
        ahead.begin(2);
        let mut numbers: Vec<usize> = made.iter().take(3).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [4, 5, 13]);
        ahead.settle();
        assert!(ahead.ready().get(5).is_none(), "it was expected for later");
        ahead.expect(vec![6]);
        let ready = ahead.ready();
        assert_eq!([4, 5, 6, 13].map(|number| ready.get(number)), [Some(&40), Some(&50), None, None]);
        ahead.begin(2);
        assert_eq!(made.recv().unwrap(), 6);
        ahead.settle();
        ahead.expect(Vec::new());
        assert_eq!((ahead.ready().get(6), ahead.ready().get(5)), (Some(&60), None));
        ahead.begin(2);
        assert!(made.try_recv().is_err(), "nothing is made twice");
    }

    #[test]
    fn what_nobody_wants_any_more_is_not_begun() {
        let (open, gate) = channel();
        let (ahead, made) = tens(Some(gate));
        ahead.expect(vec![1, 2, 3]);
        ahead.begin(1);
        assert_eq!(made.recv().unwrap(), 1);
        ahead.expect(vec![4]);
        open.send(()).unwrap();
        ahead.settle();
        assert_eq!((ahead.ready().get(1), ahead.ready().get(2)), (Some(&10), None));
        ahead.begin(1);
        assert_eq!(made.recv().unwrap(), 4, "and not 2");
        drop(ahead);
        open.send(()).unwrap();
    }

    #[test]
    fn nothing_is_made_ahead_for_several_who_ask() {
        let (ahead, made) = tens(None);
        ahead.expect(vec![1]);
        std::thread::scope(|threads| {
            threads.spawn(|| ahead.expect(vec![2]));
        });
        ahead.begin(1);
        ahead.expect(vec![3]);
        ahead.begin(1);
        ahead.settle();
        assert!(made.try_recv().is_err());
    }

    #[test]
    fn what_panics_is_left_to_whoever_asks() {
        let ahead = Ahead::new(|number: usize| if number == 0 { panic!("as a test wants it") } else { Some(number) });
        ahead.expect(vec![0]);
        ahead.begin(1);
        ahead.expect(vec![1]);
        ahead.begin(1);
        ahead.expect(Vec::new());
        // Whether there was time for it is not known; that it does no harm is.
        assert!(ahead.ready().get(1).is_none_or(|&number| number == 1) && ahead.ready().get(0).is_none());
    }
}
