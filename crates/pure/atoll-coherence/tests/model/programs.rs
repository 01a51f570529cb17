//! The programs of the modelled nodes.

use atoll_coherence::agent::{Layout, Mode};
use atoll_coherence::merge::Page;

/// A step of a node's program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Reads a word, which must have the value that was written last.
    Read(Page, usize),
    /// Writes a word.
    Write(Page, usize, u8),
    /// Waits for all nodes; the region after the barrier has this mode.
    Barrier(Mode),
    /// After a barrier step: a read, or a write of the value, by a thread that does not wait for the barrier, before it is over
    /// or after.
    Late(Page, usize, Option<u8>),
    /// Asks for the page to write, and goes on at once, as is done for workers that walk along pages.
    Ahead(Page),
    /// The origin begins a region of this mode; the others begin it when they are told.
    Begin(Mode),
}

use Mode::{ManyWriters, OneWriter};
use Step::{Ahead, Barrier, Begin, Late, Read, Write};

/// A program: the steps of each node. It begins in a region of one writer.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) layout: Layout,
    pub(crate) pages: Page,
    pub(crate) nodes: &'static [&'static [Step]],
}

const fn layout(nodes: u8, stretch: u64) -> Layout {
    Layout::new(nodes, 0, stretch)
}

/// The programs. Programs of one writer may race: a read must then see the last write of that interleaving. Programs of many
/// writers have no races, since only barriers give them an order.
pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        name: "two nodes write and read one page",
        layout: layout(2, 0),
        pages: 1,
        nodes: &[&[Write(0, 0, 1), Read(0, 0), Write(0, 0, 2)], &[Read(0, 0), Write(0, 0, 3), Read(0, 0)]],
    },
    Program {
        name: "three nodes write one page",
        layout: layout(3, 0),
        pages: 1,
        nodes: &[&[Read(0, 0), Write(0, 0, 1)], &[Read(0, 0), Write(0, 0, 2)], &[Write(0, 0, 3), Read(0, 0)]],
    },
    Program {
        name: "three nodes upgrade what all of them read, home elsewhere",
        layout: layout(3, 1),
        pages: 2,
        nodes: &[&[Read(1, 0), Write(1, 0, 1)], &[Read(1, 0), Write(1, 0, 2)], &[Read(1, 0), Write(1, 0, 3)]],
    },
    Program {
        name: "two pages, two homes, crosswise",
        layout: layout(3, 1),
        pages: 2,
        nodes: &[
            &[Write(0, 0, 1), Read(1, 0)],
            &[Write(1, 0, 2), Read(0, 0)],
            &[Read(0, 0), Read(1, 0), Write(0, 0, 3)],
        ],
    },
    Program {
        name: "two nodes write one page at once, and read it after the barrier",
        layout: layout(2, 0),
        pages: 1,
        nodes: &[
            &[Barrier(ManyWriters), Write(0, 0, 1), Barrier(OneWriter), Read(0, 0), Read(0, 1)],
            &[Barrier(ManyWriters), Write(0, 1, 2), Barrier(OneWriter), Read(0, 0), Read(0, 1)],
        ],
    },
    Program {
        name: "the same, again and again, with a value put back",
        layout: layout(2, 0),
        pages: 1,
        nodes: &[
            &[
                Barrier(ManyWriters),
                Write(0, 0, 1),
                Barrier(ManyWriters),
                Write(0, 0, 0),
                Barrier(OneWriter),
                Read(0, 1),
            ],
            &[
                Barrier(ManyWriters),
                Write(0, 1, 2),
                Barrier(ManyWriters),
                Write(0, 1, 3),
                Read(0, 1),
                Barrier(OneWriter),
                Read(0, 0),
            ],
        ],
    },
    Program {
        name: "three nodes, two pages written at once, a writer merges",
        layout: layout(3, 1),
        pages: 2,
        nodes: &[
            &[Barrier(ManyWriters), Barrier(OneWriter), Read(1, 0), Read(1, 1)],
            &[Barrier(ManyWriters), Write(1, 0, 1), Write(0, 0, 3), Barrier(OneWriter)],
            &[Barrier(ManyWriters), Write(1, 1, 2), Barrier(OneWriter), Read(1, 0), Read(0, 0)],
        ],
    },
    Program {
        name: "three nodes, the origin merges, one writes on at once",
        layout: layout(3, 0),
        pages: 1,
        nodes: &[
            &[Barrier(ManyWriters), Write(0, 0, 1), Barrier(OneWriter), Read(0, 1)],
            &[Barrier(ManyWriters), Write(0, 1, 2), Barrier(OneWriter), Write(0, 1, 4)],
            &[Barrier(ManyWriters), Barrier(OneWriter), Read(0, 0)],
        ],
    },
    Program {
        name: "a page that one node had alone is read and written by others in the region",
        layout: layout(3, 0),
        pages: 1,
        nodes: &[
            &[Barrier(ManyWriters), Barrier(ManyWriters), Barrier(OneWriter), Read(0, 0)],
            &[
                Write(0, 1, 5),
                Barrier(ManyWriters),
                Write(0, 0, 1),
                Barrier(ManyWriters),
                Barrier(OneWriter),
                Read(0, 0),
            ],
            &[Barrier(ManyWriters), Read(0, 1), Barrier(ManyWriters), Write(0, 1, 2), Barrier(OneWriter)],
        ],
    },
    Program {
        name: "the merging node fetches a page while another writes it and puts that back",
        layout: layout(3, 0),
        pages: 1,
        nodes: &[
            &[Barrier(ManyWriters), Write(0, 0, 3), Barrier(OneWriter), Read(0, 1)],
            &[
                Write(0, 0, 9),
                Barrier(ManyWriters),
                Write(0, 1, 5),
                Write(0, 1, 0),
                Barrier(OneWriter),
                Read(0, 0),
            ],
            &[Read(0, 0), Barrier(ManyWriters), Barrier(OneWriter), Read(0, 1)],
        ],
    },
    Program {
        name: "a thread that is at no barrier reads and writes what others have",
        layout: layout(2, 0),
        pages: 2,
        nodes: &[
            &[
                Write(1, 0, 3),
                Barrier(ManyWriters),
                Late(0, 1, None),
                Write(0, 0, 1),
                Barrier(OneWriter),
                Late(0, 0, Some(5)),
            ],
            &[
                Write(0, 1, 9),
                Barrier(ManyWriters),
                Late(1, 0, None),
                Barrier(OneWriter),
                Late(1, 1, Some(7)),
                Read(0, 0),
            ],
        ],
    },
    Program {
        name: "what is asked for ahead comes when a region of many writers has begun",
        layout: layout(2, 0),
        pages: 1,
        nodes: &[
            &[Barrier(OneWriter), Ahead(0), Begin(ManyWriters), Barrier(OneWriter), Read(0, 0)],
            &[
                Barrier(OneWriter),
                Read(0, 0),
                Begin(ManyWriters),
                Write(0, 0, 1),
                Barrier(OneWriter),
                Read(0, 0),
            ],
        ],
    },
    Program {
        name: "the merging node lets who asks wait",
        layout: layout(3, 0),
        pages: 1,
        nodes: &[
            &[Barrier(ManyWriters), Barrier(OneWriter), Write(0, 0, 7)],
            &[Read(0, 0), Barrier(ManyWriters), Write(0, 0, 1), Barrier(OneWriter)],
            &[Read(0, 0), Barrier(ManyWriters), Write(0, 1, 2), Barrier(OneWriter), Read(0, 1)],
        ],
    },
];

/// The mode before the first barrier.
pub(crate) const fn first_mode() -> Mode {
    OneWriter
}
