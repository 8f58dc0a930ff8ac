//! Standard output, which may be a pipe that nobody reads any more, or a file on a full disk.

use std::io::{self, ErrorKind, Write};
use std::process::exit;
use std::sync::Once;

/// What a shell says of a program that wrote to a closed pipe.
pub(crate) const BROKEN_PIPE: i32 = 128 + 13;

/// Prints a line of what a command is asked for, as `print_text` does; its words are like those of `println!`.
macro_rules! print_line {
    ($($words:tt)+) => {
        $crate::output::print_text(&format!("{}\n", format_args!($($words)+)))
    };
}

pub(crate) use print_line;

/// Prints at once what a command is asked for. A reader that has seen enough (`nettorrent model list | head`) ends the program
/// quietly, as it does other command-line tools. Whatever else keeps the text from being written ends it with an error.
pub(crate) fn print_text(text: &str) {
    if let Err(error) = write_while_read(text) {
        complain(&format!("error: {}", problem(&error)));
        exit(1);
    }
}

/// Says a line about work that goes on. That it cannot be written costs nothing but the line, and is said once on standard error;
/// only a reader that has seen enough ends the program.
pub(crate) fn say_line(line: &str) {
    if let Err(error) = write_while_read(&format!("{line}\n")) {
        complain_once(&error);
    }
}

/// Why no further event is printed.
pub(crate) enum Unprinted {
    /// Nobody reads them any more.
    Unread,
    /// They cannot be written, which was said on standard error.
    Unwritten,
}

/// Prints an event of work that goes on whether or not another program reads it.
pub(crate) fn print_event(line: &str) -> Result<(), Unprinted> {
    write(line).map_err(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            return Unprinted::Unread;
        }
        complain_once(&error);
        Unprinted::Unwritten
    })
}

/// Says a line on standard error. If that fails too, there is nobody left to tell.
pub(crate) fn complain(line: &str) {
    io::stderr().write_all(format!("{line}\n").as_bytes()).ok();
}

fn write_while_read(text: &str) -> io::Result<()> {
    match write(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(BROKEN_PIPE),
        result => result,
    }
}

/// Writes all of it now: what is kept for later would be lost without a word.
fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn problem(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

fn complain_once(error: &io::Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| complain(&format!("warning: {}; the work goes on", problem(error))));
}
