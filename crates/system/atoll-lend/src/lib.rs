//! Far memory in other hosts: the lender, and what a run's launcher does to borrow.
//!
//! The programs' own part, which moves pages on the fault path, is the far store `hosts` of `atoll-memory`; its `wire` has the
//! format. A [`Lender`] lends pieces of memory by the capabilities of `atoll-channel`: each request names one, and the table checks
//! it on arrival. A [`Control`] is the connection by which a run's session with a lender begins and ends; [`Keeper`] looks whether
//! the lenders of a run live. [`Directory`] is how lenders and borrowers of one user find each other: by a folder, or by the
//! names that lenders keep.
//!
//! Source: the barrelfish paper, sections 3.2 and 6.6: capabilities to memory of another address space, which its owner checks.

mod control;
mod directory;
mod filing;
mod holdings;
mod keeper;
mod lender;
mod line;
mod names;
mod serve;

pub use self::control::{Control, ControlError, Loan, Report};
pub use self::directory::{Card, Directory, DirectoryError, Entered, Secret};
pub use self::keeper::{Keeper, Loss, Watch};
pub use self::lender::{LendError, Lender, Terms};
