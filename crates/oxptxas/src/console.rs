//! What a program says: a closed or full standard output is no reason to panic.

use std::io::Write;

/// Writes to standard error. Where nobody listens, there is nobody to tell.
pub fn tell(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Writes to standard output. That the reader has closed it, and so wants no more, counts as success.
///
/// # Errors
/// What keeps the text from being written, such as a full disk.
pub fn show(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e),
        _ => Ok(()),
    }
}
