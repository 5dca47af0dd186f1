//! Files that are written whole or not at all, and file names that need not be text.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a file whole or not at all: under another name in the same folder, which then takes the place of the old file
/// in one step, so that an interruption or a full disk leaves what was there. Devices and pipes are written in
/// place, and a link stays one; a file with several names keeps them all.
///
/// # Errors
/// What keeps the file from being written; nothing is left behind then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let old = std::fs::metadata(path).ok();
    // A link to nothing is written through as well.
    let link = old.is_none() && std::fs::symlink_metadata(path).is_ok();
    if link || old.as_ref().is_some_and(|m| !m.is_file()) {
        let mut file = std::fs::OpenOptions::new().write(true).create(link).open(path)?;
        return file.write_all(bytes);
    }
    may_be_so_long(bytes.len())?;
    // Who may not write the file gets no other in its place; root may.
    if old.is_some() {
        std::fs::OpenOptions::new().write(true).open(path)?;
    }
    let names = old.as_ref().map_or(1, names);
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut made = match tempfile::Builder::new()
        .prefix(".oxptxas-")
        .permissions(permissions(old))
        .tempfile_in(folder)
    {
        Ok(made) => made,
        // A folder where nothing can be made, but the file itself can be written.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied && path.exists() => {
            return write_in_place(path, bytes);
        }
        Err(e) => return Err(e),
    };
    // Where this ends with an error there is no room, and the old file was not touched.
    made.write_all(bytes)?;
    if names > 1 {
        return write_in_place(path, bytes);
    }
    made.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Gives a file that is there other contents, or, if that can't be done, those that it has.
fn write_in_place(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let old = std::fs::read(path)?;
    std::fs::write(path, bytes).inspect_err(|_| {
        // The error that is told is the first.
        let _ = std::fs::write(path, &old);
    })
}

/// Writes behind what a file has, or makes it.
///
/// # Errors
/// What keeps it from being written.
pub(crate) fn append(path: &Path, text: &str) -> std::io::Result<()> {
    let there = std::fs::metadata(path).map_or(0, |m| m.len() as usize);
    may_be_so_long(there + text.len())?;
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// Whether the process may write files of this length: it would be ended by a signal in the midst of one that is longer.
#[cfg(unix)]
fn may_be_so_long(length: usize) -> std::io::Result<()> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if most.is_some_and(|most| length as u64 > most) {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(())
}

/// By how many names a file is known.
#[cfg(unix)]
fn names(file: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(file)
}

/// Those of the file that is replaced, or what the process's mask leaves of the usual ones.
#[cfg(unix)]
fn permissions(old: Option<std::fs::Metadata>) -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    old.map_or_else(|| std::fs::Permissions::from_mode(0o666), |m| m.permissions())
}

/// The file that an argument names. `text` is what an option table made of the arguments, which replaces bytes that are
/// not text; those are found again in the argument itself.
pub fn path_of(arguments: &[OsString], text: &str) -> PathBuf {
    let named = |a: &OsString| {
        let lossy = a.to_string_lossy();
        if lossy == text {
            return Some(PathBuf::from(a));
        }
        lossy.strip_suffix(text)?.strip_suffix('=').map(|_| after_equals(a))
    };
    if !text.contains(char::REPLACEMENT_CHARACTER) {
        return text.into();
    }
    arguments.iter().find_map(named).unwrap_or_else(|| text.into())
}

#[cfg(unix)]
fn after_equals(argument: &OsStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let bytes = argument.as_bytes();
    let at = bytes.iter().position(|b| *b == b'=').map_or(0, |i| i + 1);
    OsStr::from_bytes(&bytes[at..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.cubin");
        write_whole(&path, b"first").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_whole(&link, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
        let (dangling, target) = (dir.path().join("dangling"), dir.path().join("target"));
        std::os::unix::fs::symlink("target", &dangling).unwrap();
        write_whole(&dangling, b"third").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"third");
        assert!(std::fs::symlink_metadata(&dangling).unwrap().is_symlink());
        // As whoever may not write it, unless he may write everything.
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o444)).unwrap();
        let may = std::fs::OpenOptions::new().write(true).open(&target).is_ok();
        assert_eq!(write_whole(&target, b"fourth").is_ok(), may);
        assert!(write_whole(&dir.path().join("missing/k.cubin"), b"x").is_err());
        write_whole(Path::new("/dev/null"), b"x").unwrap();
    }

    #[test]
    fn a_file_keeps_its_names() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("k.cubin"), dir.path().join("other"));
        write_whole(&path, b"the first, which is longer").unwrap();
        std::fs::hard_link(&path, &other).unwrap();
        write_whole(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"second");
        assert_eq!(names(&std::fs::metadata(&path).unwrap()), 2);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn names_that_are_not_text_are_found_again() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(b"k\xff.ptx".to_vec());
        let option = OsString::from_vec(b"--output-file=\xfe.cubin".to_vec());
        let arguments = [odd.clone(), option];
        assert_eq!(path_of(&arguments, &odd.to_string_lossy()), PathBuf::from(&odd));
        assert_eq!(
            path_of(&arguments, "\u{fffd}.cubin"),
            PathBuf::from(OsString::from_vec(b"\xfe.cubin".to_vec()))
        );
        assert_eq!(path_of(&arguments, "plain.ptx"), PathBuf::from("plain.ptx"));
    }
}
