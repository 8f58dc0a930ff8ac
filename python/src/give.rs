//! Taking parts of a gradient from Python while the rest is still computed.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nettorrent_engine::task::GradientSink;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What Python calls with the number of a bucket as soon as that is written: in order, from any thread. After the call that it was made
/// for it does nothing.
#[pyclass(module = "nettorrent._core", frozen)]
pub(crate) struct Give {
    lent: Lent,
    buckets: Arc<[Range<usize>]>,
}

type Lent = Arc<Mutex<Option<Loan>>>;

/// A sink and a gradient of somebody who waits until they are given back.
struct Loan {
    sink: *mut GradientSink<'static>,
    gradient: *const f32,
    n_given: usize,
}

// SAFETY: a sink may be called by any thread, numbers may be read by any, and the lock lets one at a time.
unsafe impl Send for Loan {}

fn lock(lent: &Lent) -> MutexGuard<'_, Option<Loan>> {
    lent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes back what was lent, also if there was a panic.
struct Borrower<'a>(&'a Lent);

impl Drop for Borrower<'_> {
    fn drop(&mut self) {
        *lock(self.0) = None;
    }
}

/// Has Python write a gradient and give its buckets; the buckets that it has not given follow at the end, unless there was an error.
pub(crate) fn take_buckets<R, E>(
    sink: &mut GradientSink<'_>,
    gradient: &mut [f32],
    buckets: &Arc<[Range<usize>]>,
    compute: impl FnOnce(Give, &mut [f32]) -> Result<R, E>,
) -> Result<R, E> {
    let borrowed: *mut GradientSink<'_> = sink;
    // SAFETY: only the lifetime changes, and `Borrower` takes the pointer back before the sink's ends.
    let borrowed: *mut GradientSink<'static> =
        unsafe { std::mem::transmute::<*mut GradientSink<'_>, *mut GradientSink<'static>>(borrowed) };
    let loan = Loan { sink: borrowed, gradient: gradient.as_ptr(), n_given: 0 };
    let lent: Lent = Arc::new(Mutex::new(Some(loan)));
    let borrower = Borrower(&lent);
    let computed = compute(Give { lent: lent.clone(), buckets: buckets.clone() }, gradient)?;
    let n_given = lock(&lent).take().map_or(0, |loan| loan.n_given);
    drop(borrower);
    for (k, bucket) in buckets.iter().enumerate().skip(n_given) {
        sink(k, &gradient[bucket.clone()]);
    }
    Ok(computed)
}

#[pymethods]
impl Give {
    /// Where each bucket lies in the gradient.
    #[getter]
    fn buckets(&self) -> Vec<(usize, usize)> {
        self.buckets.iter().map(|bucket| (bucket.start, bucket.end)).collect()
    }

    fn __call__(&self, py: Python<'_>, bucket: usize) -> PyResult<()> {
        py.detach(|| self.give(bucket))
    }
}

impl Give {
    fn give(&self, bucket: usize) -> PyResult<()> {
        let mut lent = lock(&self.lent);
        let Some(loan) = &mut *lent else { return Ok(()) };
        let place = self.buckets.get(bucket).filter(|_| bucket == loan.n_given);
        let Some(place) = place else {
            return Err(PyValueError::new_err(format!("bucket {bucket} is not the one after {} others", loan.n_given)));
        };
        // SAFETY: sink and gradient are there until the loan is taken back, for which the lock is needed; buckets lie in the gradient, and
        // whoever gives one has written it.
        let (sink, numbers) =
            unsafe { (&mut *loan.sink, std::slice::from_raw_parts(loan.gradient.add(place.start), place.len())) };
        sink(bucket, numbers);
        loan.n_given += 1;
        Ok(())
    }
}
