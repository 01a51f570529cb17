//! A static ELF program: which parts of it go where, checked before anything is loaded.
//!
//! Every backend's `load` uses it. The file is read through `object`, and everything in it is taken for hostile.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};

use crate::errno::Errno;
use crate::window::Window;

/// The most program headers that a program may have; static ones have about ten.
const MOST_HEADERS: usize = 128;

/// The width of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// i386.
    Bits32,
    /// x86-64.
    Bits64,
}

impl std::fmt::Display for Width {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bits32 => "32-bit",
            Self::Bits64 => "64-bit",
        })
    }
}

/// The reason why a file is not a program for segmentation cores.
#[derive(thiserror::Error, Debug)]
pub enum ImageError {
    /// The system refused.
    #[error("{0} cannot be read: {1}")]
    Read(PathBuf, std::io::Error),
    /// The file is no ELF file, or contradicts itself.
    #[error("its ELF structure is damaged ({0})")]
    Damaged(String),
    /// The program is for another processor.
    #[error("it is not a program for i386 or x86-64")]
    Foreign,
    /// The file is neither executable nor position-independent.
    #[error("it is not an executable: link it with -static")]
    NotExecutable,
    /// The program needs a dynamic linker.
    #[error("it is dynamically linked, and a segment holds one static program: link it with -static")]
    Dynamic,
    /// The program does not fit.
    #[error(
        "it needs {what} at offset {offset:#x}, and the segment has {low:#x} to {limit:#x}: give it more with --memory"
    )]
    DoesNotFit {
        /// The kind of part that does not fit.
        what: &'static str,
        /// The part's offset.
        offset: u64,
        /// The lowest usable offset.
        low: u64,
        /// The first offset beyond the segment.
        limit: u64,
    },
}

fn damaged(what: impl Into<String>) -> ImageError {
    ImageError::Damaged(what.into())
}

/// A part of the file that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    offset: u64,
    file_bytes: u64,
    address: u64,
    memory_bytes: u64,
    executable: bool,
}

/// The checked headers of a static ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The processor mode that the program is for.
    pub width: Width,
    /// The offset of the first instruction; for a position-independent program, from its start.
    pub entry: u64,
    /// The offset of the program headers in memory, and their number.
    pub headers: Option<(u64, u64)>,
    /// Whether the program may be loaded anywhere.
    pub movable: bool,
    parts: Vec<Part>,
}

impl Image {
    /// Reads the headers of a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no static program.
    pub fn open(path: &Path) -> Result<Image, ImageError> {
        let file = File::open(path).map_err(|e| ImageError::Read(path.to_owned(), e))?;
        Image::parse(&ReadCache::new(file))
    }

    /// Reads the headers from any bytes.
    ///
    /// # Errors
    /// The bytes are no static program.
    pub fn parse<'a, R: ReadRef<'a>>(data: R) -> Result<Image, ImageError> {
        let ident = data.read_bytes_at(0, 20).map_err(|()| damaged("it is shorter than an ELF header"))?;
        if ident[..4] != elf::ELFMAG || ident[5] != elf::ELFDATA2LSB.0 {
            return Err(damaged("it does not begin as a little-endian ELF file"));
        }
        let machine = elf::Machine(u16::from_le_bytes([ident[18], ident[19]]));
        match (elf::FileClass(ident[4]), machine) {
            (elf::ELFCLASS32, elf::EM_386) => headers::<FileHeader32<Endianness>, R>(data, Width::Bits32),
            (elf::ELFCLASS64, elf::EM_X86_64) => headers::<FileHeader64<Endianness>, R>(data, Width::Bits64),
            _ => Err(ImageError::Foreign),
        }
    }

    /// Returns the first offset and the first unused offset behind it, as linked.
    pub fn extent(&self) -> (u64, u64) {
        let first = self.parts.iter().map(|p| p.address).min().unwrap_or(0);
        let last = self.parts.iter().map(|p| p.address + p.memory_bytes).max().unwrap_or(0);
        (first, last)
    }

    /// Returns where the program's code is when it is loaded `slide` bytes higher than linked: for each part the first offset
    /// and the first beyond.
    pub(crate) fn code(&self, slide: u64) -> Vec<(u64, u64)> {
        let of = |p: &Part| p.executable.then_some((p.address + slide, p.address + p.file_bytes + slide));
        self.parts.iter().filter_map(of).collect()
    }

    /// Checks that the whole program lies in `low..limit` when it is loaded `slide` bytes higher than linked.
    ///
    /// # Errors
    /// [`ImageError::DoesNotFit`].
    pub fn fits(&self, slide: u64, low: u64, limit: u64) -> Result<(), ImageError> {
        for part in &self.parts {
            let start = part.address.checked_add(slide);
            let end = start.and_then(|start| start.checked_add(part.memory_bytes));
            if start.is_none_or(|start| start < low) || end.is_none_or(|end| end > limit) {
                let what = if part.executable { "code" } else { "data" };
                return Err(ImageError::DoesNotFit { what, offset: part.address, low, limit });
            }
        }
        Ok(())
    }

    /// Copies the program into a segment of zeros, `slide` bytes higher than linked.
    ///
    /// # Errors
    /// The file became shorter, cannot be read, or does not fit.
    pub fn load(&self, path: &Path, window: &Window, slide: u64) -> Result<(), ImageError> {
        self.fits(slide, window.low(), window.limit())?;
        let read = |e| ImageError::Read(path.to_owned(), e);
        let file = File::open(path).map_err(read)?;
        let mut piece = vec![0; 1 << 20];
        for part in &self.parts {
            let mut done = 0;
            while done < part.file_bytes {
                let now = piece.len().min((part.file_bytes - done) as usize);
                file.read_exact_at(&mut piece[..now], part.offset + done).map_err(read)?;
                let to = part.address + slide + done;
                window.write_bytes(to, &piece[..now]).map_err(|Errno(_)| damaged("a part lies outside"))?;
                done += now as u64;
            }
        }
        Ok(())
    }
}

fn headers<'a, H, R>(data: R, width: Width) -> Result<Image, ImageError>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let wrong = |e: object::Error| damaged(e.to_string());
    let header = H::parse(data).map_err(wrong)?;
    let endian = header.endian().map_err(wrong)?;
    let movable = match header.e_type(endian) {
        elf::ET_EXEC => false,
        elf::ET_DYN => true,
        _ => return Err(ImageError::NotExecutable),
    };
    let table = header.program_headers(endian, data).map_err(wrong)?;
    if table.len() > MOST_HEADERS {
        return Err(damaged(format!("{} program headers, and at most {MOST_HEADERS} are read", table.len())));
    }
    let file_len = data.len().map_err(|()| damaged("its length is unknown"))?;
    let mut parts = Vec::new();
    let mut stated = None;
    for part in table {
        match part.p_type(endian) {
            elf::PT_INTERP => return Err(ImageError::Dynamic),
            elf::PT_PHDR => stated = Some(part.p_vaddr(endian).into()),
            elf::PT_LOAD => parts.extend(load_part(part, endian, width, file_len)?),
            _ => {}
        }
    }
    if parts.is_empty() {
        return Err(damaged("no part of it is to be loaded"));
    }
    let entry: u64 = header.e_entry(endian).into();
    let inside = |p: &&Part| p.executable && (p.address..p.address + p.memory_bytes).contains(&entry);
    if parts.iter().find(inside).is_none() {
        return Err(damaged(format!("it begins at {entry:#x}, where it has no code")));
    }
    let from: u64 = header.e_phoff(endian).into();
    let bytes = table.len() as u64 * u64::from(header.e_phentsize(endian));
    let holds = |p: &&Part| {
        from >= p.offset && from.checked_add(bytes).is_some_and(|end| end <= p.offset + p.file_bytes)
    };
    let found = stated.or_else(|| parts.iter().find(holds).map(|p| p.address + (from - p.offset)));
    Ok(Image { width, entry, headers: found.map(|at| (at, table.len() as u64)), movable, parts })
}

/// Loads one PT_LOAD; `None` where it is empty.
fn load_part<P: ProgramHeader<Endian = Endianness>>(
    part: &P,
    endian: Endianness,
    width: Width,
    file_len: u64,
) -> Result<Option<Part>, ImageError> {
    let found = Part {
        offset: part.p_offset(endian).into(),
        file_bytes: part.p_filesz(endian).into(),
        address: part.p_vaddr(endian).into(),
        memory_bytes: part.p_memsz(endian).into(),
        executable: part.p_flags(endian).contains(elf::PF_X),
    };
    if found.memory_bytes == 0 {
        return Ok(None);
    }
    if found.file_bytes > found.memory_bytes {
        return Err(damaged("a part is larger in the file than in memory"));
    }
    if found.offset.checked_add(found.file_bytes).is_none_or(|end| end > file_len) {
        return Err(damaged("a part lies beyond the end of the file"));
    }
    let most = if width == Width::Bits32 { 1 << 32 } else { 1 << 47 };
    if found.address.checked_add(found.memory_bytes).is_none_or(|end| end > most) {
        return Err(damaged("a part lies beyond the end of memory"));
    }
    Ok(Some(found))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Makes a 64-bit program of one part: header, program header, 16 bytes of code.
    pub(crate) fn small_64() -> Vec<u8> {
        let mut file = vec![0_u8; 0x78];
        file[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        let words: [(usize, u64); 12] = [
            (16, 2 | 62 << 16 | 1 << 32),
            (24, 0x40_0078),
            (32, 0x40),
            (40, 0),
            (48, 0x40 << 32 | 0x38 << 48),
            (56, 1),
            (0x40, 1 | 5 << 32),
            (0x48, 0),
            (0x50, 0x40_0000),
            (0x60, 0x88),
            (0x68, 0x2000),
            (0x70, 0x1000),
        ];
        for (at, word) in words {
            file[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        file.extend([0x90; 16]);
        file
    }

    /// Makes a 32-bit program of one part: header, program header, 16 bytes of code.
    pub(crate) fn small(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut file = vec![0_u8; 0x54];
        file[..16].copy_from_slice(b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0");
        let words: [(usize, u32); 13] = [
            (16, 2 | 3 << 16),
            (20, 1),
            (24, 0x0804_8054),
            (28, 0x34),
            (40, 0x34 | 0x20 << 16),
            (44, 1),
            (0x34, 1),
            (0x38, 0),
            (0x3c, 0x0804_8000),
            (0x44, 0x64),
            (0x48, 0x2000),
            (0x4c, 5),
            (0x50, 0x1000),
        ];
        for (at, word) in words {
            file[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        file.extend([0x90; 16]);
        change(&mut file);
        file
    }

    fn set(at: usize, word: u32) -> impl FnOnce(&mut Vec<u8>) {
        move |file| file[at..at + 4].copy_from_slice(&word.to_le_bytes())
    }

    #[test]
    fn a_small_program_is_read() {
        let image = Image::parse(&*small(|_| ())).unwrap();
        assert_eq!((image.width, image.entry, image.movable), (Width::Bits32, 0x0804_8054, false));
        assert_eq!((image.headers, image.extent()), (Some((0x0804_8034, 1)), (0x0804_8000, 0x0804_a000)));
        assert!(image.fits(0, 0x10000, 0x0804_a000).is_ok());
        for (slide, low, limit) in [(0, 0x0804_8001, 1 << 30), (0, 0, 0x0804_9fff), (u64::MAX, 0, u64::MAX)] {
            assert!(matches!(image.fits(slide, low, limit), Err(ImageError::DoesNotFit { .. })));
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        type Change = Box<dyn FnOnce(&mut Vec<u8>)>;
        let why = |change: Change| Image::parse(&*small(change)).unwrap_err().to_string();
        let cases: [(Change, &str); 11] = [
            (Box::new(|f| f.truncate(19)), "shorter than an ELF header"),
            (Box::new(|f| f[0] = 0), "does not begin as"),
            (Box::new(|f| f[18] = 40), "not a program for i386"),
            (Box::new(|f| f[16] = 1), "not an executable"),
            (Box::new(set(0x34, 3)), "dynamically linked"),
            (Box::new(set(0x44, 0x3000)), "larger in the file than in memory"),
            (Box::new(|f| f.truncate(0x60)), "beyond the end of the file"),
            (Box::new(set(0x38, 0xffff_ffff)), "beyond the end of the file"),
            (Box::new(set(0x3c, 0xffff_f000)), "beyond the end of memory"),
            (Box::new(set(24, 0)), "where it has no code"),
            (Box::new(set(0x34, 4)), "no part of it is to be loaded"),
        ];
        for (change, text) in cases {
            let said = why(change);
            assert!(said.contains(text), "{said}: not {text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Image::parse(&*bytes);
        }

        #[test]
        fn a_damaged_program_is_read_or_refused(changes in prop::collection::vec((0_usize..0x64, any::<u8>()), 1..8), cut in 0_usize..0x65) {
            let bytes = small(|file| {
                for (at, byte) in changes {
                    file[at] = byte;
                }
                file.truncate(cut);
            });
            if let Ok(image) = Image::parse(&*bytes) {
                // A program that is accepted is loaded inside the window or not at all.
                if image.fits(0, 0x10000, 1 << 30).is_ok() {
                    let (first, end) = image.extent();
                    prop_assert!(first >= 0x10000 && end <= 1 << 30);
                }
            }
        }
    }
}
