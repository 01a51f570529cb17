//! What addresses belonged to, and when: variables, the spans of memory they had, regions and their phases.
//!
//! All of this is made from [`Event`]s and [`Names`] when a profile is opened. [`locator`](super::locator) finds the span of a
//! sample.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::event::Event;
use super::names::{CodeLine, ModuleNames, Names};

/// The most spans; beyond this number globals get none, so that a small file cannot ask for much memory.
const MAX_SPANS: usize = 1 << 22;

/// The kinds of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Blocks allocated by one call.
    Heap,
    /// A global or static variable.
    Global,
    /// A thread's stack.
    Stack,
    /// Anonymous memory of no known call: small blocks, stacks of threads, memory mapped before recording began.
    Anonymous,
    /// A file's data, including globals without names.
    File,
    /// The code of a file.
    Code,
}

impl Kind {
    /// Returns the kind in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Global => "global",
            Self::Stack => "stack",
            Self::Anonymous => "anonymous",
            Self::File => "file",
            Self::Code => "code",
        }
    }
}

/// A variable: a global, all blocks that one call allocated, or memory of no name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variable {
    /// The kind of memory.
    pub kind: Kind,
    /// The variable's name: that of the global, else what the source assigns the block to, else the function that allocated it,
    /// else the file. Untrusted text.
    pub name: String,
    /// The function that allocated it; empty: none, or not known.
    pub function: String,
    /// The source file of the declaration or of the call; empty: not known.
    pub file: String,
    /// The line of that place; 0: not known.
    pub line: u32,
    /// The program's or library's file; empty: none.
    pub module: String,
}

impl Variable {
    /// Returns `file.c:12`, with the file's name only; empty where it is not known.
    pub fn place(&self) -> String {
        place(&self.file, self.line)
    }
}

/// The name of memory that atoll maps into a program for itself.
const OWN: &str = "memory of atoll's own";

impl Variable {
    /// Whether it is memory or code of atoll's own, which is in the program only because it is profiled.
    pub fn is_atolls(&self) -> bool {
        let file = self.module.rsplit('/').next().unwrap_or_default();
        let library = ["libatoll_profile.so", "libatoll_openmp.so", "libatoll_hooks.so"];
        (self.kind == Kind::Anonymous && self.name == OWN) || library.iter().any(|l| file.starts_with(l))
    }
}

/// A stretch of memory that a variable had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// An index of [`Profile::variables`](super::Profile::variables).
    pub variable: u32,
    /// The address space.
    pub space: u32,
    /// The first address.
    pub start: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The time at which it was mapped or allocated.
    pub born_ns: u64,
    /// The time at which it was unmapped or freed; `u64::MAX`: never.
    pub died_ns: u64,
}

/// A parallel region.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    /// The outlined function. Untrusted text.
    pub name: String,
    /// The source file; empty: not known.
    pub file: String,
    /// The line of that place; 0: not known.
    pub line: u32,
}

/// One run of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// An index of [`Profile::regions`](super::Profile::regions).
    pub region: u32,
    /// The address space.
    pub space: u32,
    /// The time at which it began.
    pub begin_ns: u64,
    /// The time at which it ended; `u64::MAX`: never.
    pub end_ns: u64,
}

/// Returns `file.c:12`, with the file's name only; empty where the file is.
pub fn place(file: &str, line: u32) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    match (name.is_empty(), line) {
        (true, _) => String::new(),
        (false, 0) => name.to_owned(),
        (false, line) => format!("{name}:{line}"),
    }
}

/// Address ranges that do not overlap, each with a number. A later range takes the place of what was there.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer(BTreeMap<u64, (u64, u32)>);

impl Layer {
    pub(super) fn put(&mut self, range: Range<u64>, number: u32) {
        self.clear(range.clone());
        if range.start < range.end {
            self.0.insert(range.start, (range.end, number));
        }
    }

    /// Removes the range, also from the middle of others.
    pub(super) fn clear(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        if let Some((&start, &(end, number))) = self.0.range(..range.start).next_back()
            && end > range.start
        {
            self.0.insert(start, (range.start, number));
            if end > range.end {
                self.0.insert(range.end, (end, number));
            }
        }
        while let Some((&start, &(end, number))) = self.0.range(range.clone()).next() {
            self.0.remove(&start);
            if end > range.end {
                self.0.insert(range.end, (end, number));
            }
        }
    }

    /// Returns the number at an address.
    pub(super) fn at(&self, address: u64) -> Option<u32> {
        let (_, &(end, number)) = self.0.range(..=address).next_back()?;
        (address < end).then_some(number)
    }

    /// Returns the numbers within a range.
    fn within(&self, range: Range<u64>) -> Vec<u32> {
        self.0.range(range).map(|(_, &(_, number))| number).collect()
    }
}

/// The variables, spans, regions and phases of a profile.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) variables: Vec<Variable>,
    pub(super) spans: Vec<Span>,
    pub(super) regions: Vec<Region>,
    pub(super) phases: Vec<Phase>,
}

/// A mapping of a file.
struct Mapped {
    path: String,
    start: u64,
    offset: u64,
}

#[derive(Default)]
struct Space {
    files: Layer,
    /// The numbers of mappings' spans.
    mappings: Layer,
    blocks: BTreeMap<u64, u32>,
    /// The spans of globals, by their file and the distance of the file's place from its own addresses.
    globals: HashMap<(String, u64), Range<u32>>,
    phase: Option<u32>,
}

struct Builder<'a> {
    names: &'a Names,
    memory: Memory,
    numbers: HashMap<Variable, u32>,
    regions: HashMap<Region, u32>,
    spaces: HashMap<u32, Space>,
    mapped: Vec<Mapped>,
}

/// Builds everything from the events, which are taken in their order.
pub(super) fn build(events: &[Event], names: &Names) -> Memory {
    let mut builder = Builder {
        names,
        memory: Memory::default(),
        numbers: HashMap::new(),
        regions: HashMap::new(),
        spaces: HashMap::new(),
        mapped: Vec::new(),
    };
    for event in events {
        builder.add(event);
    }
    builder.memory
}

impl Builder<'_> {
    fn add(&mut self, event: &Event) {
        match *event {
            Event::Exec { time_ns, space, .. } => {
                for span in self.memory.spans.iter_mut().filter(|s| s.space == space && s.died_ns == u64::MAX)
                {
                    span.died_ns = time_ns;
                }
                self.end_phase(space, time_ns);
                self.spaces.remove(&space);
            }
            Event::Map { time_ns, space, start, bytes, offset, ref path, code } => {
                let end = start.saturating_add(bytes);
                self.unmap(time_ns, space, start..end);
                // The runtime's own files hold the program's memory, except for these.
                let runtime = path.starts_with("/memfd:atoll-");
                let own = ["control", "journal", "tables"].iter().any(|file| {
                    path.strip_prefix("/memfd:atoll-").is_some_and(|name| name.starts_with(file))
                });
                let kind = match &**path {
                    _ if runtime => Kind::Anonymous,
                    "[stack]" => Kind::Stack,
                    _ if code => Kind::Code,
                    "" | "//anon" | "[heap]" => Kind::Anonymous,
                    _ => Kind::File,
                };
                let name = match &**path {
                    _ if own => OWN,
                    "/memfd:atoll-pinned (deleted)" => "small blocks, stacks and small globals",
                    _ if kind == Kind::Anonymous => "anonymous memory",
                    path => path,
                };
                let file = path.starts_with('/') && !path.starts_with("//") && !runtime;
                let variable = self.variable(Variable {
                    kind,
                    name: name.rsplit('/').next().unwrap_or(name).to_owned(),
                    function: String::new(),
                    file: String::new(),
                    line: 0,
                    module: if file { path.clone() } else { String::new() },
                });
                let span =
                    self.span(Span { variable, space, start, bytes, born_ns: time_ns, died_ns: u64::MAX });
                let number = self.mapped.len() as u32;
                let at = self.spaces.entry(space).or_default();
                at.mappings.put(start..end, span);
                if file {
                    self.mapped.push(Mapped { path: path.clone(), start, offset });
                    at.files.put(start..end, number);
                    self.globals(time_ns, space, start, offset, path);
                }
            }
            Event::Unmap { time_ns, space, start, bytes } => {
                self.unmap(time_ns, space, start..start.saturating_add(bytes));
            }
            Event::Block { time_ns, space, start, bytes, site } => {
                self.free(time_ns, space, start);
                let variable = self.block(space, site);
                let span =
                    self.span(Span { variable, space, start, bytes, born_ns: time_ns, died_ns: u64::MAX });
                self.spaces.entry(space).or_default().blocks.insert(start, span);
            }
            Event::Free { time_ns, space, start } => self.free(time_ns, space, start),
            Event::RegionBegin { time_ns, space, function } => {
                self.end_phase(space, time_ns);
                let line = self.line(space, function).map(|(line, _)| line.clone()).unwrap_or_default();
                let name = if line.function.is_empty() {
                    self.offset_in_file(space, function).0
                } else {
                    line.function
                };
                let region = Region { name, file: line.file, line: line.line };
                let regions = &mut self.memory.regions;
                let region = *self.regions.entry(region).or_insert_with_key(|region| {
                    regions.push(region.clone());
                    regions.len() as u32 - 1
                });
                self.spaces.entry(space).or_default().phase = Some(self.memory.phases.len() as u32);
                self.memory.phases.push(Phase { region, space, begin_ns: time_ns, end_ns: u64::MAX });
            }
            Event::RegionEnd { time_ns, space } => self.end_phase(space, time_ns),
            Event::Fork { space, parent, .. } => {
                // Until the process executes another program, its code is where its parent's is.
                let files = self.spaces.get(&parent).map(|parent| parent.files.clone()).unwrap_or_default();
                self.spaces.entry(space).or_default().files = files;
            }
            Event::Number { .. }
            | Event::Worker { .. }
            | Event::WorkerEnd { .. }
            | Event::Wakeup { .. }
            | Event::Period { .. }
            | Event::Lost { .. } => {}
        }
    }

    fn end_phase(&mut self, space: u32, time_ns: u64) {
        if let Some(phase) = self.spaces.get_mut(&space).and_then(|s| s.phase.take()) {
            self.memory.phases[phase as usize].end_ns = time_ns;
        }
    }

    fn unmap(&mut self, time_ns: u64, space: u32, range: Range<u64>) {
        let at = self.spaces.entry(space).or_default();
        for span in at.mappings.within(range.clone()) {
            let span = &mut self.memory.spans[span as usize];
            if span.start >= range.start && span.start.saturating_add(span.bytes) <= range.end {
                span.died_ns = time_ns;
            }
        }
        at.mappings.clear(range.clone());
        at.files.clear(range);
    }

    fn free(&mut self, time_ns: u64, space: u32, start: u64) {
        if let Some(span) = self.spaces.get_mut(&space).and_then(|s| s.blocks.remove(&start)) {
            self.memory.spans[span as usize].died_ns = time_ns;
        }
    }

    /// Returns the spans of a file's globals, made at the first of its mappings that says where the file lies.
    fn globals(&mut self, time_ns: u64, space: u32, start: u64, offset: u64, path: &str) {
        let Some(module) = self.names.modules.get(path) else { return };
        let Some(address) = module.address_of(offset) else { return };
        let bias = start.wrapping_sub(address);
        let key = (path.to_owned(), bias);
        // The place of a file's data does not follow from a mapping of its middle alone, as one page may belong to two
        // segments.
        if offset != 0 {
            return;
        }
        let room = self.memory.spans.len() + module.globals.len() <= MAX_SPANS;
        if module.globals.is_empty()
            || !room
            || self.spaces.entry(space).or_default().globals.contains_key(&key)
        {
            return;
        }
        let first = self.memory.spans.len() as u32;
        for global in &module.globals {
            let variable = self.variable(Variable {
                kind: Kind::Global,
                name: global.name.clone(),
                function: String::new(),
                file: global.file.clone(),
                line: global.line,
                module: path.to_owned(),
            });
            let (start, bytes) = (bias.wrapping_add(global.address), global.bytes);
            self.span(Span { variable, space, start, bytes, born_ns: time_ns, died_ns: u64::MAX });
        }
        let spans = first..self.memory.spans.len() as u32;
        self.spaces.entry(space).or_default().globals.insert(key, spans);
    }

    /// Returns the source line of a code address, and its module.
    fn line(&self, space: u32, address: u64) -> Option<(&CodeLine, &str)> {
        let mapped = self.spaces.get(&space)?.files.at(address)?;
        let mapped = &self.mapped[mapped as usize];
        let module: &ModuleNames = self.names.modules.get(&mapped.path)?;
        let inside = module.address_of(mapped.offset.wrapping_add(address.wrapping_sub(mapped.start)))?;
        module.lines.get(&inside).map(|line| (line, &*mapped.path))
    }

    /// Returns the name of a code address that has none, by its file: `libfoo.so.1+0x1234`, as the file's own tools count; and
    /// the file. Returns the bare address where no file is known.
    fn offset_in_file(&self, space: u32, address: u64) -> (String, &str) {
        let mapped = self.spaces.get(&space).and_then(|s| s.files.at(address));
        let Some(mapped) = mapped.map(|number| &self.mapped[number as usize]) else {
            return (format!("{address:#x}"), "");
        };
        let offset = mapped.offset.wrapping_add(address.wrapping_sub(mapped.start));
        let inside = self.names.modules.get(&mapped.path).and_then(|module| module.address_of(offset));
        let file = mapped.path.rsplit('/').next().unwrap_or_default();
        (format!("{file}+{:#x}", inside.unwrap_or(offset)), &mapped.path)
    }

    fn block(&mut self, space: u32, site: u64) -> u32 {
        let found = self.line(space, site).map(|(line, path)| (line.clone(), path.to_owned()));
        let (place, file) = self.offset_in_file(space, site);
        let (line, module) = found.unwrap_or_else(|| (CodeLine::default(), file.to_owned()));
        let name = match (line.target.is_empty(), line.function.is_empty()) {
            (false, _) => line.target,
            (true, false) => format!("block of {}", line.function),
            (true, true) if site == 0 => "block".to_owned(),
            (true, true) => format!("block of {place}"),
        };
        self.variable(Variable {
            kind: Kind::Heap,
            name,
            function: line.function,
            file: line.file,
            line: line.line,
            module,
        })
    }

    fn variable(&mut self, variable: Variable) -> u32 {
        let variables = &mut self.memory.variables;
        *self.numbers.entry(variable).or_insert_with_key(|variable| {
            variables.push(variable.clone());
            variables.len() as u32 - 1
        })
    }

    fn span(&mut self, span: Span) -> u32 {
        self.memory.spans.push(span);
        self.memory.spans.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_layer_says_what_was_put_last(puts in proptest::collection::vec((0u64..60, 0u64..30, any::<bool>()), 0..40)) {
            let (mut layer, mut slow) = (Layer::default(), [None; 100]);
            for (number, &(start, len, put)) in puts.iter().enumerate() {
                if put {
                    layer.put(start..start + len, number as u32);
                } else {
                    layer.clear(start..start + len);
                }
                slow[start as usize..(start + len) as usize].fill(put.then_some(number as u32));
            }
            for (address, want) in slow.iter().enumerate() {
                prop_assert_eq!(layer.at(address as u64), *want);
            }
        }
    }
}
