//! Makes a trace of libCacheSim's oracleGeneral format.
//!
//! That format is a row of 24 bytes for each request, little-endian: time (4 bytes), object (8), its bytes (4), and the number
//! of the object's next request (8), which is not needed. Objects become pages in the order in which they first come; an object
//! larger than a page is still one page.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::path::Path;

use atoll_record::trace::{Event, Header, Writer};

use super::launch::{SaveError, create, save};

const ROW_BYTES: usize = 24;
const OBJECT: std::ops::Range<usize> = 4..12;

/// The reason why a file cannot be imported.
#[derive(thiserror::Error, Debug)]
pub(crate) enum ImportError {
    /// The file cannot be read.
    #[error("{0} cannot be read: {1}")]
    Read(String, io::Error),
    /// The file's length is not a whole number of rows.
    #[error("{path} is cut off at byte {at}, in the middle of a row of oracleGeneral ({ROW_BYTES} bytes)")]
    Cut {
        /// The file.
        path: String,
        /// The file's length.
        at: u64,
    },
    /// The file is compressed, as most published ones are.
    #[error("{0} is compressed: unpack it first (zstd -d)")]
    Compressed(String),
    /// The trace cannot be written.
    #[error("{0}")]
    Save(#[from] SaveError),
}

/// Imports `from`; all requests become reads by worker 0.
///
/// # Errors
/// See [`ImportError`]; `to` is then as it was.
pub(crate) fn import(from: &Path, to: &Path) -> Result<(), ImportError> {
    let name = from.display().to_string();
    let read = |error| ImportError::Read(name.clone(), error);
    let failed = |error| SaveError::File(to.display().to_string(), error);
    let mut rows = BufReader::new(File::open(from).map_err(read)?);
    let header = Header {
        atoll_version: env!("CARGO_PKG_VERSION").to_owned(),
        program: name.clone(),
        arguments: vec![name.clone()],
        engine: "oracle-general".to_owned(),
        exact: true,
        ..Header::default()
    };
    let mut writer = Writer::new(BufWriter::new(create(to)?), &header).map_err(failed)?;
    let (mut pages, mut row, mut at) = (HashMap::new(), [0; ROW_BYTES], 0u64);
    loop {
        let n = fill(&mut rows, &mut row).map_err(read)?;
        if at == 0 && row.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            return Err(ImportError::Compressed(name));
        }
        match n {
            0 => break,
            ROW_BYTES => at += 1,
            n => return Err(ImportError::Cut { path: name, at: at * ROW_BYTES as u64 + n as u64 }),
        }
        let mut object = [0; 8];
        object.copy_from_slice(&row[OBJECT]);
        let next = pages.len() as u64;
        let page = *pages.entry(u64::from_le_bytes(object)).or_insert(next);
        writer.push(&Event::Access { worker: 0, page, write: false }).map_err(failed)?;
    }
    let file = writer.finish(at, BTreeMap::new()).map_err(failed)?;
    Ok(save(file, to)?)
}

/// Reads as much of a row as there is.
fn fill(from: &mut impl Read, row: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < row.len() {
        match from.read(&mut row[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_record::trace::Reader;

    fn rows(objects: &[u64]) -> Vec<u8> {
        let row = |(time, object): (usize, &u64)| {
            let mut row = (time as u32).to_le_bytes().to_vec();
            row.extend(object.to_le_bytes());
            row.extend(4096u32.to_le_bytes());
            row.extend((-1i64).to_le_bytes());
            row
        };
        objects.iter().enumerate().flat_map(row).collect()
    }

    #[test]
    fn requests_become_reads_of_pages_numbered_as_they_come() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a.oracleGeneral"), dir.path().join("a.trace"));
        std::fs::write(&from, rows(&[u64::MAX, 7, u64::MAX, 9])).unwrap();
        import(&from, &to).unwrap();
        let (mut reader, mut events) = (Reader::open(&to).unwrap(), Vec::new());
        while reader.next_chunk(&mut events).unwrap() {}
        let read = |page| Event::Access { worker: 0, page, write: false };
        assert_eq!(events, [read(0), read(1), read(0), read(2)]);
        assert!(reader.header().exact && reader.header().engine == "oracle-general");
    }

    #[test]
    fn what_is_no_such_trace_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&from, &rows(&[1, 2])[..40]).unwrap();
        assert!(matches!(import(&from, &to), Err(ImportError::Cut { at: 40, .. })));
        std::fs::write(&from, [0x28, 0xb5, 0x2f, 0xfd, 0]).unwrap();
        assert!(matches!(import(&from, &to), Err(ImportError::Compressed(_))));
        assert!(matches!(import(&to, &from), Err(ImportError::Read(..))));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
