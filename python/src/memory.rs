//! Rust memory that Python code may look at for the time of a call.

use pyo3::ffi;
use pyo3::prelude::*;

/// `PyBUF_WRITE` of Python's headers, which the stable interface has no name for.
const WRITABLE: std::ffi::c_int = 0x200;

/// Memory that lends itself to plain bytes.
pub(crate) trait Plain: Copy {}

impl Plain for f32 {}
impl Plain for i64 {}

/// A view of numbers for Python, good for as long as they are borrowed: whoever gets it must not keep it.
pub(crate) fn view<'py, T: Plain>(py: Python<'py>, numbers: &mut [T]) -> PyResult<Bound<'py, PyAny>> {
    let (start, len) = (numbers.as_mut_ptr(), size_of_val(numbers) as isize);
    // SAFETY: the memory is borrowed for as long as the caller keeps its reference, and every bit pattern is a number.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyMemoryView_FromMemory(start.cast(), len, WRITABLE)) }
}

/// The same of numbers that Python code only reads. PyTorch warns of memory that cannot be written, so it is not told.
pub(crate) fn read_only<'py, T: Plain>(py: Python<'py>, numbers: &[T]) -> PyResult<Bound<'py, PyAny>> {
    let (start, len) = (numbers.as_ptr().cast_mut(), size_of_val(numbers) as isize);
    // SAFETY: as above; the workers of this package do not write to what they are given to read.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyMemoryView_FromMemory(start.cast(), len, WRITABLE)) }
}
