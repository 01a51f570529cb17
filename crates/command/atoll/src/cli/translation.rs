//! The flags of `atoll run` that put a program's memory into a direct segment.

use atoll_memory::segment::PageKind;
use atoll_pages::Size;
use clap::{Args, ValueEnum};

/// How addresses become memory.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct TranslationArgs {
    /// Whether memory is pages that come and go, or one segment of huge pages that is complete before the program starts
    ///
    /// In a segment nothing is paged: no near limit, no far memory, and no page fault after the start. Its memory is reserved
    /// huge pages; `atoll doctor` says how to reserve them. Where there are none, the kernel is asked for transparent ones, and
    /// a line says so.
    #[arg(long, value_enum, default_value_t = Translation::Paging)]
    pub(crate) translation: Translation,

    /// Bytes of the segment (such as 4G), which is all the memory that the program may use
    ///
    /// Default: all reserved pages that are free; where none are reserved, half of the memory that is available.
    #[arg(long, value_name = "SIZE", value_parser = segment_size)]
    pub(crate) segment_size: Option<Size>,

    /// The pages a segment is made of; if they are not available, the next smaller ones are used
    #[arg(long, value_name = "PAGES", value_enum, default_value_t = SegmentPage::Huge1G)]
    pub(crate) segment_page: SegmentPage,

    /// End with an error if the segment cannot be made of --segment-page, or cannot be locked in memory
    #[arg(long)]
    pub(crate) strict: bool,
}

fn segment_size(text: &str) -> Result<Size, String> {
    match text.parse::<Size>() {
        Ok(Size(0)) => Err("a segment of no bytes holds nothing".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

/// How addresses become memory.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Translation {
    /// Pages
    Paging,
    /// A segment
    Segment,
}

/// Pages of a segment.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentPage {
    /// Reserved pages of 1 GiB
    #[value(name = "1G")]
    Huge1G,
    /// Reserved pages of 2 MiB
    #[value(name = "2M")]
    Huge2M,
    /// Transparent huge pages
    Thp,
}

impl From<SegmentPage> for PageKind {
    fn from(arg: SegmentPage) -> Self {
        match arg {
            SegmentPage::Huge1G => Self::Huge1G,
            SegmentPage::Huge2M => Self::Huge2M,
            SegmentPage::Thp => Self::Transparent,
        }
    }
}
