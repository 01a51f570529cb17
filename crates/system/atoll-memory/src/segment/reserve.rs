//! Reserving huge pages for as long as they are needed, as root: what measurements and tests do around their runs.
//!
//! `atoll run` reserves nothing by itself: what is reserved is missing everywhere else. What was added to the kernel's pool
//! is taken out again when the reservation is dropped, and also if this process is killed: a small process of its own
//! waits for that.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::kind::PageKind;

/// Why pages were not reserved.
#[derive(thiserror::Error, Debug)]
pub enum ReserveError {
    /// These pages are not reserved.
    #[error("{} are not reserved", .0.name())]
    Kind(PageKind),
    /// The pool's size cannot be read or set.
    #[error("{0} cannot be set ({1}): only root reserves huge pages")]
    Pool(String, std::io::Error),
    /// The kernel found fewer.
    #[error("{need} {} are needed and the kernel found memory for {free}", kind.name())]
    Few {
        /// The pages.
        kind: PageKind,
        /// Asked for.
        need: u64,
        /// Free now.
        free: u64,
    },
    /// The process that takes them back cannot be started.
    #[error("sh cannot be started to give huge pages back at the end: {0}")]
    Keeper(std::io::Error),
}

/// Huge pages that are reserved as long as this lives.
#[derive(Debug)]
pub struct Reservation {
    /// Gives them back when its standard input ends.
    keeper: Option<Child>,
}

/// Waits for the end of its input, then takes $2 pages from the pool $1. A terminal's signals are for others.
const KEEPER: &str = r#"trap '' INT TERM HUP QUIT; read -r line; n=$(cat "$1"); n=$((n - $2)); [ "$n" -ge 0 ] || n=0; echo "$n" > "$1""#;

impl Reservation {
    /// Sees to it that `pages` pages of `kind` are free: so many more than there are, as others may be about to use those;
    /// where the kernel has no memory for that, as many as lack.
    ///
    /// # Errors
    /// See [`ReserveError`]; nothing stays reserved.
    pub fn take(kind: PageKind, pages: u64) -> Result<Reservation, ReserveError> {
        match Reservation::add(kind, pages, pages) {
            Err(ReserveError::Few { .. }) => Reservation::add(kind, pages, pages.saturating_sub(kind.free())),
            done => done,
        }
    }

    /// Adds `lacking` pages to the pool, for `pages` that are needed.
    fn add(kind: PageKind, pages: u64, lacking: u64) -> Result<Reservation, ReserveError> {
        let pool = kind.pool().ok_or(ReserveError::Kind(kind))?.join("nr_hugepages");
        if lacking == 0 {
            return Ok(Reservation { keeper: None });
        }
        let before = read(&pool)?;
        // The keeper first: from the first page on somebody gives them back.
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(&pool)
            .arg(lacking.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Who ends this process by a signal to its group must not end the keeper.
            .process_group(0)
            .spawn()
            .map_err(ReserveError::Keeper)?;
        let mut reservation = Reservation { keeper: Some(keeper) };
        if let Err(error) = std::fs::write(&pool, (before + lacking).to_string()) {
            // Nothing was added: nothing is to be taken back.
            reservation.forget();
            return Err(ReserveError::Pool(pool.display().to_string(), error));
        }
        let now = read(&pool)?;
        if now < before + lacking {
            // The keeper would take back as many as were asked for. Others may have changed the pool meanwhile.
            reservation.forget();
            let added = now.saturating_sub(before);
            let _ = std::fs::write(&pool, read(&pool)?.saturating_sub(added).to_string());
            return Err(ReserveError::Few {
                kind,
                need: pages,
                free: pages.saturating_sub(before + lacking - now),
            });
        }
        Ok(reservation)
    }

    /// Ends the keeper before it does anything.
    fn forget(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
    }
}

fn read(pool: &PathBuf) -> Result<u64, ReserveError> {
    let wrong = |error| ReserveError::Pool(pool.display().to_string(), error);
    let text = std::fs::read_to_string(pool).map_err(wrong)?;
    text.trim().parse().map_err(|_| wrong(std::io::Error::from(std::io::ErrorKind::InvalidData)))
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            if let Some(mut input) = keeper.stdin.take() {
                let _ = input.write_all(b"\n");
            }
            let _ = keeper.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reserved_is_given_back() {
        if matches!(Reservation::take(PageKind::Transparent, 1), Ok(_) | Err(ReserveError::Pool(..))) {
            panic!("transparent huge pages have no pool");
        }
        let before = PageKind::Huge2M.free();
        match Reservation::take(PageKind::Huge2M, before + 2) {
            Ok(reservation) => {
                assert!(PageKind::Huge2M.free() >= before + 2);
                drop(reservation);
                assert_eq!(PageKind::Huge2M.free(), before);
            }
            Err(error) => atoll_skips::skip_part!("{error}"),
        }
    }
}
