//! Threads by leave of make: the tokens of its jobserver, which the environment names (GNU make's manual, "POSIX Jobserver
//! Interaction").

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Tokens that were taken; they go back where they came from at the end.
#[derive(Debug, Default)]
pub struct Tokens {
    back: Option<File>,
    taken: Vec<u8>,
}

impl Tokens {
    /// Takes as many as there are just now, `most` at most. A process has one without asking. `None` without a jobserver.
    pub fn take(most: usize) -> Option<Tokens> {
        Tokens::from(&std::env::var("MAKEFLAGS").ok()?, most)
    }

    fn from(flags: &str, most: usize) -> Option<Tokens> {
        let (from, to) = ends(flags)?;
        let mut from = open(&from, false)?;
        let mut tokens = Tokens { back: Some(open(&to, true)?), taken: Vec::new() };
        let mut token = [0];
        // Reading never waits: without a token there is an error, and without make an end.
        while tokens.taken.len() < most && matches!(from.read(&mut token), Ok(1)) {
            tokens.taken.push(token[0]);
        }
        Some(tokens)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.taken.len()
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        if let Some(back) = &mut self.back {
            // Nobody could be told that it failed.
            let _ = back.write_all(&self.taken);
        }
    }
}

/// Where tokens are read and where they are written, by the last word that says so.
fn ends(flags: &str) -> Option<(PathBuf, PathBuf)> {
    let named = |w: &'_ str| {
        let rest = w.strip_prefix("--jobserver-auth=").or_else(|| w.strip_prefix("--jobserver-fds="));
        rest.map(str::to_owned)
    };
    let place = flags.split_whitespace().filter_map(named).next_back()?;
    if let Some(path) = place.strip_prefix("fifo:") {
        return Some((path.into(), path.into()));
    }
    let (r, w) = place.split_once(',')?;
    // Opened anew, so that the others who have it read as before.
    let path = |n: &str| Some(Path::new("/proc/self/fd").join(n.parse::<u32>().ok()?.to_string()));
    Some((path(r)?, path(w)?))
}

#[cfg(target_os = "linux")]
fn open(path: &Path, write: bool) -> Option<File> {
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    const O_NONBLOCK: i32 = 0o4000;
    // Make closes the pipe for those that it does not take for make; the number may then be any file's.
    let kind = std::fs::metadata(path).ok()?.file_type();
    if !kind.is_fifo() {
        return None;
    }
    std::fs::OpenOptions::new().read(!write).write(write).custom_flags(O_NONBLOCK).open(path).ok()
}

#[cfg(not(target_os = "linux"))]
fn open(_: &Path, _: bool) -> Option<File> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn tokens_come_and_go_back() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"abc").unwrap();
        let flags = format!("-j --jobserver-auth={},{}", reader.as_raw_fd(), writer.as_raw_fd());
        let two = Tokens::from(&flags, 2).unwrap();
        assert_eq!(two.count(), 2);
        assert_eq!(Tokens::from(&flags, 8).unwrap().count(), 1);
        drop(two);
        let all = Tokens::from(&flags, 8).unwrap();
        let mut taken = all.taken.clone();
        taken.sort_unstable();
        assert_eq!(taken, b"abc");
    }

    #[test]
    fn what_is_no_jobserver_gives_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "++").unwrap();
        let text = format!("--jobserver-auth=fifo:{}", file.display());
        for flags in ["", "-j8", "--jobserver-auth=-2,-2", "--jobserver-auth=900,901", &text] {
            assert!(Tokens::from(flags, 4).is_none(), "{flags}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"++");
    }
}
